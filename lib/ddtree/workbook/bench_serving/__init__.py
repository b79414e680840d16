"""Benchmark of SGLang servers: plain, DFLASH and DDTREE on the same requests."""
