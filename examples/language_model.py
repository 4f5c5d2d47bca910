"""What do the blocks of a GPT-2 add to its stream while it learns to write?

A small GPT-2 reads the manual that comes with Python, letter by letter. The same held-out text is captured at
every validation, so that the numbers of two steps speak of the same letters.

    python examples/language_model.py [FOLDER]

Prints the share of attention and MLP of each block in its stream at each validation, and what it writes.
"""

import logging
import sys
import warnings
from pathlib import Path
from pydoc_data.topics import topics

import lightning.pytorch as pl
import torch
from torch import Tensor
from torch.utils.data import DataLoader
from transformers import GPT2Config, GPT2LMHeadModel
from transformers.utils.logging import set_verbosity_error

import tl_integrations as tl

LENGTH, BLOCKS = 64, 3
set_verbosity_error()
logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
warnings.filterwarnings("ignore", message=".*does not have many workers.*|.*LeafSpec.*")


class Writer(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        sizes = {"vocab_size": 256, "n_positions": LENGTH, "n_embd": 64, "n_layer": BLOCKS, "n_head": 4}
        small = {"initializer_range": 0.1, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "resid_pdrop": 0.0}
        self.gpt = GPT2LMHeadModel(GPT2Config(bos_token_id=10, eos_token_id=0, **sizes, **small))

    def training_step(self, letters: Tensor, batch_idx: int) -> Tensor:
        return self.gpt(input_ids=letters, labels=letters).loss

    def validation_step(self, letters: Tensor, batch_idx: int) -> None:
        self.log("val_loss", self.gpt(input_ids=letters, labels=letters).loss, batch_size=len(letters))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=5e-3)


def manual() -> tuple[DataLoader[Tensor], DataLoader[Tensor]]:
    """Pieces of Python's manual as bytes: to train on, and one batch held out."""
    letters = torch.tensor(list(" ".join(" ".join(topics.values()).split()).encode()))
    pieces = letters[: len(letters) // LENGTH * LENGTH].view(-1, LENGTH)
    return DataLoader(pieces[:-16], batch_size=16, shuffle=True), DataLoader(pieces[-16:], batch_size=16)


def shares(recording: tl.Recording, step: int) -> list[float]:
    """What attention and MLP of each block add, as a share of the norm of what leaves the block."""
    kept, found = recording.at(step, stage="validate"), []
    for block in (f"gpt.transformer.h.{number}" for number in range(BLOCKS)):
        for part in ("attn", "mlp"):
            found.append(float(kept[f"{block}.{part}.c_proj"].out.norm() / kept[block].out.norm()))
    return found


def main(folder: Path = Path("outputs/language_model"), steps: int = 200) -> tl.Recording:
    """Returns what was captured, opened from the disk."""
    torch.set_num_threads(1)
    pl.seed_everything(0, verbose=False)
    callback = tl.TraceCallback(
        save=["gpt.transformer.h.*", "gpt.transformer.h.*.*.c_proj"],
        stages=["validate"],
        storage=tl.to_disk(folder / "run.tlspec", overwrite=True),
    )
    trainer = pl.Trainer(
        max_steps=steps,
        val_check_interval=steps // 4,
        accelerator="cpu",
        callbacks=[callback],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    writer, (training, held_out) = Writer(), manual()
    trainer.validate(writer, held_out, verbose=False)
    trainer.fit(writer, training, held_out)

    recording = callback.recording
    print("step  " + "".join(f"  attn {block}   mlp {block}" for block in range(BLOCKS)))
    for step in recording.steps:
        print(f"{step:<6}" + "".join(f"{share:8.2f}" for share in shares(recording, step)))
    start = torch.tensor([list(b"The ")])
    written = writer.gpt.generate(start, max_length=LENGTH, do_sample=True, top_k=5, pad_token_id=0)[0]
    print(f"held-out loss  {trainer.callback_metrics['val_loss']:.2f} nats per letter")
    print(f"it writes      {bytes(written.tolist()).decode(errors='replace')!r}")
    return recording


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
