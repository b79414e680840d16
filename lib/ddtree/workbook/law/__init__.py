"""The laws of the sampling verify: exact distributions, draws, tests of fit, and rules that must fail them."""
