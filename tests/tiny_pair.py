"""The tiny random models as a pair, with room for a scene and a tokenizer that decodes as a real one does."""

from collections.abc import Sequence

from ddtree.models.zoo import Pair
from tiny import DigitTokenizer, tiny_drafter, tiny_target


class Tokenizer(DigitTokenizer):
    def decode(self, tokens: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        return " ".join(map(str, tokens))


def tiny_pair(vocab: int = 8, *, seed: int = 0, eos_ids: Sequence[int] = ()) -> Pair:
    """A target and a drafter (depth 3) in float32."""
    target = tiny_target(vocab, seed=seed, eos_ids=eos_ids)
    target.model.config.max_position_embeddings = 4096
    target.tokenizer = Tokenizer()
    return Pair(target, tiny_drafter(target, seed=seed + 1), facts={"model": "tiny"})
