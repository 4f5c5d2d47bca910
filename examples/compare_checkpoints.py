"""What did fine-tuning change, and where in the network?

A network learns the digits 0 to 4; then its first layer is frozen and the rest learns the digits 5 to 9. The
two checkpoints are compared twice: their weights, and what each layer answers to the same images.

    python examples/compare_checkpoints.py [FOLDER]

Prints two tables of relative change, cosine and linear CKA (1: the same up to rotation and scale), and what
became of the old digits.
"""

import sys
from collections import OrderedDict
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional as F

import tl_integrations as tl
from tl_integrations.reporting.comparison import Comparison


def network() -> nn.Sequential:
    body = {"first": nn.Linear(64, 64), "relu": nn.ReLU(), "second": nn.Linear(64, 64), "relu_2": nn.ReLU()}
    return nn.Sequential(OrderedDict(body | {"head": nn.Linear(64, 10)}))


def images_of(*digits: int) -> tuple[Tensor, Tensor]:
    """The images that show one of these digits, flat, and which digit each shows."""
    every = load_digits()
    targets = torch.tensor(every.target)
    chosen = torch.isin(targets, torch.tensor(digits))
    return torch.tensor(every.data, dtype=torch.float32)[chosen] / 16, targets[chosen]


def train(net: nn.Module, images: Tensor, digits: Tensor, steps: int) -> None:
    learnable = [parameter for parameter in net.parameters() if parameter.requires_grad]
    optimizer = torch.optim.Adam(learnable, lr=0.003)
    for _ in range(steps):
        optimizer.zero_grad()
        F.cross_entropy(net(images), digits).backward()
        optimizer.step()


def answers(checkpoint: Path, images: Tensor) -> tl.Recording:
    """What every layer of a saved network answers."""
    net = network()
    net.load_state_dict(torch.load(checkpoint, weights_only=True))
    with torch.no_grad():
        return tl.record(net, images, save="*", graph=False)


def main(folder: Path = Path("outputs/compare_checkpoints"), steps: int = 150) -> Comparison:
    """Returns how the answers differ."""
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    before, after = folder / "before.pt", folder / "after.pt"
    net = network()
    train(net, *images_of(0, 1, 2, 3, 4), steps=steps)
    torch.save(net.state_dict(), before)
    net.first.requires_grad_(False)
    train(net, *images_of(5, 6, 7, 8, 9), steps=steps)
    torch.save(net.state_dict(), after)

    weights = tl.compare(*(torch.load(path, weights_only=True) for path in (before, after)))
    print("Weights", weights, sep="\n")

    images, digits = images_of(0, 1, 2, 3, 4)
    old, new = answers(before, images), answers(after, images)
    found = tl.compare(old, new)
    print("Answers to the digits 0 to 4", found, sep="\n")
    right = [float((each["head"].out.argmax(dim=1) == digits).float().mean()) for each in (old, new)]
    print(f"digits 0 to 4 right   {right[0]:.0%} before, {right[1]:.0%} after")
    print(f"untouched             {', '.join(each.layer for each in found if each.change == 0)}")
    most = min(found, key=lambda each: each.cka)
    print(f"least like before     {most.layer}, CKA {most.cka:.2f}")
    print(f"in a terminal         tl-integrations compare {before} {after}")
    return found


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
