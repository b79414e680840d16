"""What 01_tree and 02_kernel show of one round: a held state of decoding, its tree, and the verify step by step."""
