"""An executed notebook as one HTML file that asks nothing of the network."""
