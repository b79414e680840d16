"""DDTREE as a speculative algorithm of stock SGLang, not a file of which is edited, and a client that measures it."""
