"""How do I look inside a model that I train in a loop of my own?

`StepMonitor` around the steps of any loop: no Trainer, no callback. Every 50th step is captured on its way to
TensorBoard and to a bundle on disk; the others cost one comparison of integers.

    python examples/plain_loop.py [FOLDER]

Prints a table of all layers over the captured steps, what looks wrong in it, and where to look further.
"""

import sys
from pathlib import Path

import torch
from sklearn.datasets import load_diabetes
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.tensorboard import SummaryWriter

import tl_integrations as tl
from tl_integrations.reporting import TensorBoardSink


def main(folder: Path = Path("outputs/plain_loop"), epochs: int = 60) -> tl.Recording:
    """Returns what was captured, opened from the disk."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    rows, progression = load_diabetes(return_X_y=True)
    target = torch.tensor(progression, dtype=torch.float32).unsqueeze(1)
    table = TensorDataset(
        torch.tensor(rows, dtype=torch.float32) * 20, (target - target.mean()) / target.std()
    )
    loader = DataLoader(table, batch_size=64, shuffle=True)

    model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    writer = SummaryWriter(folder / "tensorboard")
    bundle = folder / "run.tlspec"
    monitor = tl.StepMonitor(
        model,
        schedule="every(50) | at(1, 2, 5)",
        save="*",
        gradients=True,
        sinks=[TensorBoardSink(writer), tl.to_disk(bundle, overwrite=True)],
    )
    for _ in range(epochs):
        for batch, wanted in loader:
            # The backward belongs inside, so that gradients are captured with the activations they belong to.
            with monitor.step():
                loss = F.mse_loss(model(batch), wanted)
                loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    monitor.close()
    writer.close()

    recording = tl.load(bundle)
    last = recording.at(recording.steps[-1])
    print(monitor.report())
    print(f"last loss          {loss.item():.3f}")
    print(f"captured steps     {', '.join(map(str, recording.steps))}")
    print(
        f"newest of layer 2  {tuple(last['2'].out.shape)}, norm of its gradient {last['2'].grad.norm():.2g}"
    )
    print(f"the same table     tl-integrations show {bundle}")
    print(f"curves             tensorboard --logdir {folder}")
    return recording


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
