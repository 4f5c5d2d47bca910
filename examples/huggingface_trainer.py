"""How do I look inside a model while HuggingFace's Trainer trains it?

A small BERT learns to tell Python's code from Python's manual, both of which come with Python.
`MonitorCallback` puts a `StepMonitor` into the Trainer; the first forward of each scheduled step is captured.

    python examples/huggingface_trainer.py [FOLDER]

Prints a table of the layers over the captured steps, the accuracy on held-out text, and where the bundle is.
"""

import argparse
import pydoc_data.topics
import sys
from pathlib import Path

import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    PrinterCallback,
    Trainer,
    TrainingArguments,
)

import tl_integrations as tl
from tl_integrations.callbacks.huggingface import MonitorCallback
from tl_integrations.reporting import report_of

LENGTH = 64


def chunks(text: str, label: int, count: int) -> list[dict[str, object]]:
    """Pieces of a text as bytes, each with the same label."""
    letters = torch.tensor(list(text.encode()[: LENGTH * count]))
    return [{"input_ids": piece, "labels": label} for piece in letters.split(LENGTH) if len(piece) == LENGTH]


def main(folder: Path = Path("outputs/huggingface_trainer"), steps: int = 60) -> float:
    """Returns the accuracy on held-out text."""
    code = chunks(Path(argparse.__file__).read_text(), 0, 800)
    prose = chunks("\n".join(pydoc_data.topics.topics.values()), 1, 800)
    train, held_out = code[:700] + prose[:700], code[700:] + prose[700:]

    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    model = BertForSequenceClassification(BertConfig(vocab_size=256, max_position_embeddings=LENGTH, **sizes))
    bundle = folder / "run.tlspec"
    monitor = tl.StepMonitor(
        model,
        schedule="every(10) | at(1)",
        save=["bert.embeddings", "bert.encoder.layer.*", "classifier"],
        sinks=[tl.to_disk(bundle, overwrite=True)],
    )
    arguments = TrainingArguments(
        output_dir=str(folder),
        max_steps=steps,
        per_device_train_batch_size=32,
        learning_rate=1e-3,
        seed=0,
        use_cpu=True,
        report_to=[],
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
    )
    trainer = Trainer(
        model=model,
        args=arguments,
        train_dataset=train,
        eval_dataset=held_out,
        callbacks=[MonitorCallback(monitor)],
        compute_metrics=lambda found: {"accuracy": (found.predictions.argmax(1) == found.label_ids).mean()},
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    accuracy = float(trainer.evaluate()["eval_accuracy"])

    recording = tl.load(bundle)
    print(report_of(recording))
    print(f"held-out accuracy  {accuracy:.1%}")
    print(f"captured steps     {', '.join(map(str, recording.steps))}")
    print(f"activations        {bundle}")
    return accuracy


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
