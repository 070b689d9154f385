#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Three programs whose tensors change size all the time, in plain PyTorch:

  gpt       trains a small transformer (6 layers, 512 wide, bf16 autocast) on
            sequences of 64 to 512 tokens
  conv      trains a residual convolution net on batches of 8 to 48 images
  generate  the transformer writes 48 tokens for each of several batches of 1 to
            16 prompts, with a cache of keys and values that grows by concatenation

Prints JSON: for each the time of a step, its losses or tokens, and peaks of
memory. Each goes through its sizes twice: once cold, when the memory is sampled
after every step, and once on the clock, with other sizes. Knows nothing of
allocators but how to ask them for their peaks: the environment chooses one."""

import argparse
import gc
import json
import random
import time

import torch
from torch import nn
from torch.nn import functional

from yardstick import Library, Meter

WIDTH, HEADS, LAYERS, WORDS, LONGEST = 512, 8, 6, 8192, 512


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x, past=None):
        batch, length, _ = x.shape
        qkv = self.qkv(self.before(x)).view(batch, length, 3, HEADS, WIDTH // HEADS)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        if past is not None:
            k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
        score = (q @ k.transpose(-1, -2)) * (WIDTH // HEADS) ** -0.5
        mask = torch.ones(length, k.shape[2], dtype=torch.bool, device=x.device)
        score = score.masked_fill(mask.triu(k.shape[2] - length + 1), float("-inf"))
        mixed = (score.softmax(-1).to(v.dtype) @ v).transpose(1, 2)
        x = x + self.out(mixed.reshape(batch, length, WIDTH))
        return x + self.down(functional.gelu(self.up(self.between(x)))), (k, v)


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(2 * LONGEST, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.end, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS)

    def forward(self, tokens, past=None):
        start = past[0][0].shape[2] if past else 0
        places = torch.arange(start, start + tokens.shape[1], device=tokens.device)
        x, kept = self.words(tokens) + self.places(places), []
        for i, block in enumerate(self.blocks):
            x, pair = block(x, past[i] if past else None)
            kept.append(pair)
        return self.head(self.end(x)), kept


class Residual(nn.Module):
    def __init__(self, inner, outer, stride):
        super().__init__()
        self.first = nn.Conv2d(inner, outer, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(outer, outer, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(outer) for _ in range(2))
        self.side = nn.Conv2d(inner, outer, 1, stride, bias=False)

    def forward(self, x):
        y = functional.relu(self.norms[0](self.first(x)))
        return functional.relu(self.norms[1](self.second(y)) + self.side(x))


def conv_net():
    layers, inner = [nn.Conv2d(3, 64, 7, 2, 3), nn.ReLU()], 64
    for outer, stride in ((64, 2), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2)):
        layers.append(Residual(inner, outer, stride))
        inner = outer
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inner, 1000))


class Gpt:
    def __init__(self):
        self.model = Transformer().cuda()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)

    def step(self, chance):
        tokens = torch.randint(WORDS, (16, chance.randint(64, LONGEST)), device="cuda")
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16):
            logits, _ = self.model(tokens[:, :-1])
            loss = functional.cross_entropy(logits.reshape(-1, WORDS), tokens[:, 1:].reshape(-1))
        loss.backward()
        self.optimizer.step()
        return [loss.detach()]


class Conv:
    def __init__(self):
        self.model = conv_net().cuda()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-2, momentum=0.9)

    def step(self, chance):
        batch = chance.randint(8, 48)
        images = torch.randn(batch, 3, 160, 160, device="cuda")
        labels = torch.randint(1000, (batch,), device="cuda")
        self.optimizer.zero_grad(set_to_none=True)
        loss = functional.cross_entropy(self.model(images), labels)
        loss.backward()
        self.optimizer.step()
        return [loss.detach()]


class Generate:
    def __init__(self):
        self.model = Transformer().cuda().bfloat16().eval()

    @torch.no_grad()
    def step(self, chance):
        shape = (chance.randint(1, 16), chance.randint(32, LONGEST - 48))
        token, past, sums = torch.randint(WORDS, shape, device="cuda"), None, []
        for _ in range(48):
            logits, past = self.model(token, past)
            token = logits[:, -1:].argmax(-1)
            sums.append(token.sum())
        return [torch.stack(sums).sum()]


WORK = {"gpt": (Gpt, 24), "conv": (Conv, 16), "generate": (Generate, 5)}


def peaks(library):
    if library:
        return library.reserved_peak(), library.allocated_peak()
    return torch.cuda.max_memory_reserved(), torch.cuda.max_memory_allocated()


def run(kind, steps, library):
    torch.manual_seed(0)
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    if library:
        library.trim()
    meter, work, results = Meter(), kind(), []
    chance = random.Random(1)
    for _ in range(steps):
        results += work.step(chance)
        meter.sample()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(steps):
        results += work.step(chance)
    torch.cuda.synchronize()
    elapsed = time.perf_counter() - start
    meter.sample()
    reserved, allocated = peaks(library)
    return {"step_ms": elapsed / steps * 1e3, "results": [r.item() for r in results],
            "device": meter.most(), "reserved": reserved, "allocated": allocated}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--part", type=float, default=1, help="of the usual number of steps")
    parser.add_argument("--work", nargs="+", choices=WORK, default=list(WORK))
    arguments = parser.parse_args()
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = False
    torch.backends.cudnn.benchmark = False
    torch.zeros(1, device="cuda") @ torch.zeros(1, device="cuda")
    library, found = Library(), {}
    for name in arguments.work:
        kind, steps = WORK[name]
        found[name] = run(kind, max(2, int(steps * arguments.part)), library)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
