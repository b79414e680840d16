"""DDTREE as a speculative algorithm of stock SGLang: a plugin that edits no file of SGLang."""
