#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""app.py NAME [WAY] [--rounds N]: one program of those that people run, as apps.py tells it.

A function returns one round of the program's work, after its imports and its data on the CPU.
What a round returns is hashed. Says "ready", waits for a line, plays a warm-up and N rounds,
and prints one line of JSON. Knows nothing of libgcpool."""

import argparse
import functools
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import unittest

import numpy


def numbers(seed, *shape):
    return numpy.random.default_rng(seed).random(shape, dtype=numpy.float32)


def samples():
    rows = numbers(0, 1_000_000, 32)
    return rows, rows @ numbers(1, 32) + numpy.sin(8 * rows[:, 0])


def xgboost(way):
    import cupy
    import xgboost
    rows, label = samples()
    arguments = {"device": "cuda", "max_depth": 8, "seed": 0}

    def round_():
        data = xgboost.QuantileDMatrix(cupy.asarray(rows), label)
        model = xgboost.train(arguments, data, num_boost_round=20)
        return {"predictions": model.inplace_predict(cupy.asarray(rows)).get(),
                "from a DMatrix": model.predict(xgboost.DMatrix(rows[:200_000]))}
    return round_, xgboost


def catboost(way):
    import catboost
    rows, label = samples()

    def round_():
        model = catboost.CatBoostRegressor(task_type="GPU", devices="0", iterations=100, depth=6,
                                           random_seed=0, verbose=False, boost_from_average=True,
                                           allow_writing_files=False)
        return {"predictions": model.fit(rows, label).predict(rows[:200_000])}
    return round_, catboost


def arrays(cupy):
    """Array code, as it is written without thought for memory."""
    random = cupy.random.RandomState(7)
    found = cupy.zeros(512, dtype=cupy.float32)
    for step in range(60):
        rows = random.rand(4000 + 64 * step, 512, dtype=cupy.float32)
        centred = rows - rows.mean(axis=0)
        order = cupy.argsort(centred[:, step])
        found += cupy.cumsum(centred[order] * centred, axis=0)[-1]
        found += cupy.sqrt(cupy.abs(centred @ centred.T[:, :512])).sum(axis=0)
    return {"sums": found.get(), "order": order.get()}


def cupy(way):
    import cupy
    if way == "no pool":
        cupy.cuda.set_allocator(None)
    elif way == "async pool":
        cupy.cuda.set_allocator(cupy.cuda.MemoryAsyncPool().malloc)
    return lambda: arrays(cupy), cupy


tools = cupy


def resource(way):
    from rmm import mr
    made = mr.CudaAsyncMemoryResource() if way == "async" else mr.CudaMemoryResource()
    mr.set_current_device_resource(
        mr.PoolMemoryResource(made, 1 << 28) if way == "pool" else made)


def rmm(way):
    import cupy
    import rmm.allocators.cupy

    def round_():
        resource(way)
        cupy.cuda.set_allocator(rmm.allocators.cupy.rmm_cupy_allocator)
        for size in list(range(1 << 10, 1 << 20, 1 << 10)) * 3:
            rmm.DeviceBuffer(size=size)
        return arrays(cupy)
    return round_, rmm


def cudf(way):
    """A join and its groups, of whole numbers, in tables of eight lengths."""
    import pylibcudf as cudf
    import rmm
    random = numpy.random.default_rng(0)
    facts = random.integers(0, 100_000, 8_000_000), random.integers(0, 1000, 8_000_000)
    names = random.permutation(100_000), random.integers(0, 1000, 100_000)
    order = [cudf.types.Order.ASCENDING], [cudf.types.NullOrder.AFTER]

    def piece(table, rows):
        return cudf.copying.gather(table, rows, cudf.copying.OutOfBoundsPolicy.DONT_CHECK).columns()

    def groups(fact, name):
        keys = (cudf.Table(table.columns()[:1]) for table in (fact, name))
        left, right = cudf.join.inner_join(*keys, cudf.types.NullEquality.EQUAL)
        (key, value), (_, weight) = piece(fact, left), piece(name, right)
        product = cudf.binaryop.binary_operation(
            value, weight, cudf.binaryop.BinaryOperator.MUL, value.type())
        wanted = [getattr(cudf.aggregation, word)() for word in ("sum", "max", "count")]
        found, (results,) = cudf.groupby.GroupBy(cudf.Table([key])).aggregate(
            [cudf.groupby.GroupByRequest(product, wanted)])
        return cudf.sorting.sort_by_key(
            cudf.Table([*found.columns(), *results.columns()]), found, *order).columns()

    def round_():
        resource(way)
        fact, name = (cudf.Table([cudf.Column.from_array(column) for column in table])
                      for table in (facts, names))
        return {str(rows): numpy.concatenate([
            column.data().obj.copy_to_host() for column in groups(
                cudf.copying.slice(fact, [0, rows])[0], name)])
            for rows in range(1_000_000, 9_000_000, 1_000_000)}
    return round_, rmm


def faiss(way):
    """Nearest neighbours: by comparing with all, and by lists made on the device."""
    import faiss
    rows, wanted = numbers(0, 200_000, 96), numbers(1, 4096, 96)

    def round_():
        made = faiss.StandardGpuResources()
        if way == "no temporary memory":
            made.noTempMemory()
        found = {}
        for name, index in (("all", faiss.GpuIndexFlatL2(made, 96)),
                            ("lists", faiss.GpuIndexIVFFlat(made, 96, 512, faiss.METRIC_L2)),
                            ("codes", faiss.GpuIndexIVFPQ(made, 96, 512, 8, 8, faiss.METRIC_L2))):
            index.train(rows[:20_000])
            if name != "all":
                index.nprobe = 16
            for part in numpy.array_split(rows, 20):
                index.add(part)
            far, found[name] = index.search(wanted, 10)
            found[name + ", distances"] = far
        return found
    return round_, faiss


def openmm(way):
    """A box of water, particle mesh Ewald, forces in a fixed order."""
    import openmm
    from openmm import app, unit
    field, water = app.ForceField("tip3p.xml"), app.Modeller(app.Topology(), [])
    water.addSolvent(field, boxSize=openmm.Vec3(6, 6, 6))
    system = field.createSystem(water.topology, nonbondedMethod=app.PME, rigidWater=True)

    def round_():
        mover = openmm.LangevinMiddleIntegrator(300, 20, 0.0005)
        mover.setRandomNumberSeed(1)
        context = openmm.Context(system, mover, openmm.Platform.getPlatformByName("CUDA"),
                                 {"DeterministicForces": "true", "Precision": "mixed"})
        context.setPositions(water.positions)
        context.setVelocitiesToTemperature(300, 1)
        mover.step(2000)
        state = context.getState(energy=True, positions=True)
        energy = state.getPotentialEnergy().value_in_unit(unit.kilojoule_per_mole)
        return {"energy": f"{energy:.4g} kJ/mol",  # a sum in any order
                "positions": state.getPositions(asNumpy=True)._value}
    return round_, openmm


def warp(way):
    import warp

    @warp.kernel
    def relax(old: warp.array2d[float], new: warp.array2d[float]):
        i, j = warp.tid()
        n = old.shape[0]
        new[i, j] = 0.25 * (old[(i + 1) % n, j] + old[(i + n - 1) % n, j] +
                            old[i, (j + 1) % n] + old[i, (j + n - 1) % n])

    @warp.kernel
    def count(left: warp.array[int]):
        left[0] = left[0] - 1

    start = numbers(0, 1024, 1024)

    def round_():
        warp.set_mempool_enabled("cuda:0", way == "memory pools")
        with warp.ScopedDevice("cuda:0"):
            grid, left = warp.array(start), warp.array([50], dtype=int)
            eager = warp.array(start)
            for _ in range(300):  # temporaries, eager
                other = warp.empty_like(eager)
                warp.launch(relax, dim=eager.shape, inputs=[eager, other])
                eager = other
            spare = warp.empty_like(grid)

            def body():
                new = warp.empty_like(grid) if way == "memory pools" else spare
                warp.launch(relax, dim=grid.shape, inputs=[grid, new])
                warp.launch(relax, dim=grid.shape, inputs=[new, grid])
                warp.launch(count, dim=1, inputs=[left])
            with warp.ScopedCapture() as plain:
                body()
            with warp.ScopedCapture() as loop:
                warp.capture_while(left, lambda: (
                    warp.launch(relax, dim=grid.shape, inputs=[grid, spare]),
                    warp.launch(relax, dim=grid.shape, inputs=[spare, grid]),
                    warp.launch(count, dim=1, inputs=[left])))
            for turn in range(20):
                warp.capture_launch(plain.graph)
                left.fill_(20 + turn)
                warp.capture_launch(loop.graph)
            return {"eager": eager.numpy(), "captured": grid.numpy()}
    return round_, warp


def warp_tests(way):
    import warp
    names = [f"warp.tests.cuda.test_{name}" for name in (
        "mempool", "conditional_captures", "capture_mode", "capture_release")]

    def round_():
        done = unittest.TextTestRunner(stream=sys.stderr).run(
            unittest.defaultTestLoader.loadTestsFromNames(names))
        bad = sorted(case.id() for case, _ in done.failures + done.errors)
        return {"tests": done.testsRun, "failed": " ".join(bad) or "none"}
    return round_, warp


def taichi(way):
    import taichi

    def round_():
        taichi.init(arch=taichi.cuda, random_seed=0, offline_cache=False, log_level="warn",
                    device_memory_GB=1)
        old, new = (taichi.field(taichi.f32, (2048, 2048)) for _ in range(2))

        @taichi.kernel
        def relax(source: taichi.template(), target: taichi.template()):
            for i, j in source:
                target[i, j] = 0.25 * (source[(i + 1) % 2048, j] + source[(i + 2047) % 2048, j] +
                                       source[i, (j + 1) % 2048] + source[i, (j + 2047) % 2048])
        old.from_numpy(numbers(0, 2048, 2048))
        for _ in range(300):
            relax(old, new)
            relax(new, old)
        found = old.to_numpy()
        taichi.reset()
        return {"field": found}
    return round_, taichi


def numba(way):
    numpy.row_stack = numpy.vstack  # numba-cuda before it knows numpy 2.5
    import numba
    from numba import cuda

    @cuda.jit
    def scale(source, target, factor):
        i = cuda.grid(1)
        if i < source.size:
            target[i] = source[i] * factor + 1

    start = numbers(0, 1 << 20)

    def round_():
        values = cuda.to_device(start)
        for step in range(2000):
            target = cuda.device_array_like(values)
            scale[values.size // 256, 256](values, target, numpy.float32(0.5 + step % 2))
            values = target
        return {"values": values.copy_to_host()}
    return round_, numba


def jax(way):
    import jax
    import jax.numpy as jnp
    data, wanted = numbers(0, 4096, 512), numbers(1, 4096, 16)

    @jax.jit
    def step(weights, x, y):
        def loss(weights):
            rows = x
            for weight in weights[:-1]:
                rows = jnp.tanh(rows @ weight)
            return ((rows @ weights[-1] - y) ** 2).mean()
        value, slope = jax.value_and_grad(loss)(weights)
        return [w - 0.1 * g for w, g in zip(weights, slope)], value

    def round_():
        keys = jax.random.split(jax.random.key(0), 5)
        weights = [jax.random.normal(key, (512, 512)) * 0.05 for key in keys]
        weights.append(jax.random.normal(keys[0], (512, 16)) * 0.05)
        losses = []
        for turn in range(120):
            rows = 2048 + 512 * (turn % 4)  # four shapes
            weights, value = step(weights, jnp.asarray(data[:rows]), jnp.asarray(wanted[:rows]))
            losses.append(value)
        return {"losses": numpy.array([float(value) for value in losses])}
    return round_, jax


def shapes(way):
    """One network of convolutions, captured at eleven image sizes."""
    import torch
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.deterministic = True

    @torch.no_grad()
    def round_():
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Conv2d(3, 48, 3, padding=1), *[
            layer for _ in range(5) for layer in (torch.nn.Conv2d(48, 48, 3, padding=1),
                                                  torch.nn.GELU())]).cuda()
        found, graphs = [], []
        for size in range(256, 928, 64):
            image = torch.rand(4, 3, size, size, device="cuda")
            model(image)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                answer = model(image).mean((2, 3))
            graphs.append((graph, image, answer))
        for graph, _, answer in graphs * 3:
            graph.replay()
            found.append(answer.clone())
        return {"outputs": torch.stack(found).cpu().numpy()}
    return round_, torch


def torch(way):
    """A network of linear layers: training steps, eager or captured; graphed callables."""
    import torch
    capture = way.startswith("captured")

    def round_():
        torch.manual_seed(0)
        model = torch.nn.Sequential(*[layer for _ in range(8) for layer in (
            torch.nn.Linear(2048, 2048), torch.nn.GELU())]).cuda()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, capturable=capture)
        x, wanted = (torch.randn(1024, 2048, device="cuda") for _ in range(2))
        forward = torch.cuda.make_graphed_callables(
            model, (x.clone(),)) if capture else model

        def step():
            optimizer.zero_grad(set_to_none=True)
            loss = torch.nn.functional.mse_loss(forward(x), wanted)
            loss.backward()
            optimizer.step()
            return loss.detach()
        losses = [step() for _ in range(60)]
        if capture:
            forward = functools.partial(torch.nn.Sequential.forward, model)
            torch.cuda.synchronize()
            with torch.cuda.stream(torch.cuda.Stream()):
                step()
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                loss = step()
            for _ in range(60):
                graph.replay()
                losses.append(loss.clone())
        return {"losses": torch.stack(losses).cpu().numpy()}
    return round_, torch


def llama_config(transformers, depth=8, **more):
    return transformers.LlamaConfig(
        hidden_size=1024, intermediate_size=2816, num_hidden_layers=depth, num_attention_heads=16,
        vocab_size=8192, max_position_embeddings=2048, **more)


def llama(torch, transformers, depth=8):
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cuda.matmul.allow_tf32 = False
    return transformers.LlamaForCausalLM(
        llama_config(transformers, depth, attn_implementation="eager"))


def generate(way):
    """Greedy tokens: eager with a growing cache, and a captured step with a static one."""
    import torch
    import transformers
    cpu = llama(torch, transformers)
    prompt = torch.randint(0, 8192, (8, 256), generator=torch.Generator().manual_seed(1))

    @torch.no_grad()
    def round_():
        model, ids = cpu.to("cuda").eval(), prompt.cuda()
        grown = model.generate(ids, max_new_tokens=96, do_sample=False, pad_token_id=0,
                               attention_mask=torch.ones_like(ids))
        tokens = []
        for length in (512, 1024):  # two graphs, as servers keep one for each size
            cache = transformers.StaticCache(config=model.config, max_cache_len=length)
            places = torch.arange(length, device="cuda")
            seen = (places <= torch.arange(256, device="cuda")[:, None]).expand(8, 1, 256, length)
            token = model(ids, attention_mask=seen, past_key_values=cache).logits[:, -1:].argmax(-1)
            mask = (places <= 256).repeat(8, 1, 1, 1)
            position = torch.full((8, 1), 256, device="cuda")

            def step():
                out = model(token, attention_mask=mask, position_ids=position,
                            past_key_values=cache)
                token.copy_(out.logits[:, -1:].argmax(-1))
                position.add_(1)
                mask.copy_(places <= position[:, :, None, None])
            step()
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                step()
            for _ in range(96):
                graph.replay()
                tokens.append(token.clone())
        return {"eager": grown.cpu().numpy(), "captured": torch.cat(tokens, 1).cpu().numpy()}
    return round_, transformers


def train(way):
    import bitsandbytes
    import torch
    import transformers
    cpu = llama(torch, transformers, 4)
    weights = {name: value.clone() for name, value in cpu.state_dict().items()}
    text = torch.randint(0, 8192, (16, 8, 512), generator=torch.Generator().manual_seed(1))

    def round_():
        cpu.load_state_dict(weights)
        model = cpu.to("cuda").train()
        optimizer = bitsandbytes.optim.AdamW8bit(model.parameters(), lr=1e-4)
        losses = []
        for turn in range(48):
            ids = text[turn % 16, :, :512 - 64 * (turn % 3)].cuda()  # three lengths
            loss = model(ids, labels=ids).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            losses.append(loss.detach())
        return {"losses": torch.stack(losses).float().cpu().numpy()}
    return round_, bitsandbytes


def llama_cpp(way):
    """Greedy tokens of a small model, its weights made at random."""
    import gguf
    import llama_cpp
    width, inner, heads, layers, words = 1024, 2816, 16, 8, 4096
    path = os.path.join(tempfile.mkdtemp(), "random.gguf")
    made = gguf.GGUFWriter(path, "llama")
    for name, value in (("context_length", 2048), ("embedding_length", width),
                        ("block_count", layers), ("feed_forward_length", inner),
                        ("head_count", heads), ("head_count_kv", heads),
                        ("layer_norm_rms_eps", 1e-5), ("vocab_size", words)):
        getattr(made, f"add_{name}")(value)
    made.add_tokenizer_model("llama")
    made.add_token_list(["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)),
                         *(f"w{number}" for number in range(259, words))])
    made.add_token_scores([0.0] * words)
    made.add_token_types([2, 3, 3, *[6] * 256, *[1] * (words - 259)])
    shapes = {"token_embd": (words, width), "output_norm": (width,), "output": (words, width)}
    for layer in range(layers):
        shapes.update({f"blk.{layer}.{name}": shape for name, shape in (
            *((f"attn_{part}", (width, width)) for part in ("q", "k", "v", "output")),
            *((f"{part}_norm", (width,)) for part in ("attn", "ffn")),
            ("ffn_gate", (inner, width)), ("ffn_up", (inner, width)),
            ("ffn_down", (width, inner)))})
    for seed, (name, shape) in enumerate(shapes.items()):
        made.add_tensor(f"{name}.weight", numpy.ones(shape, numpy.float32) if len(shape) == 1
                        else ((numbers(seed, *shape) - 0.5) * 0.1).astype(numpy.float16))
    made.write_header_to_file()
    made.write_kv_data_to_file()
    made.write_tensors_to_file()
    made.close()

    def round_():
        model = llama_cpp.Llama(path, n_gpu_layers=-1, n_ctx=1024, seed=0, verbose=False)
        tokens = model.generate(list(range(300, 600)), temp=0.0)
        found = numpy.array([next(tokens) for _ in range(300)])
        model.close()
        return {"tokens": found, "on the GPU": llama_cpp.llama_supports_gpu_offload()}
    return round_, llama_cpp


def vllm(way):
    """A server's engine: the tokens of one, five and forty prompts, batches of captured sizes."""
    os.environ.update({
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_LOGGING_STREAM": "ext://sys.stderr",
        "VLLM_HOST_IP": "127.0.0.1", "GLOO_SOCKET_IFNAME": "lo", "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1"})
    import torch
    import transformers
    import vllm
    place = tempfile.mkdtemp()
    llama_config(transformers, architectures=["LlamaForCausalLM"]).save_pretrained(place)
    random, engine = numpy.random.default_rng(1), []
    prompts = [{"prompt_token_ids": random.integers(3, 8192, 20 + 5 * turn).tolist()}
               for turn in range(40)]
    wanted = vllm.SamplingParams(temperature=0, max_tokens=64, ignore_eos=True, detokenize=False,
                                 logprobs=0)

    def round_():
        engine[:] = engine or [vllm.LLM(
            place, skip_tokenizer_init=True, load_format="dummy", dtype="float16", seed=0,
            max_model_len=2048, max_num_seqs=64, kv_cache_memory_bytes=2 << 30,
            gpu_memory_utilization=0.1, enable_prefix_caching=False, disable_log_stats=True,
            enable_sleep_mode=way == "sleep", attention_config={"backend": "TRITON_ATTN"},
            compilation_config={"mode": 0, "cudagraph_mode": "FULL_DECODE_ONLY",
                                "cudagraph_capture_sizes": [1, 2, 4, 8, 16, 32, 64]})]
        found = {}
        for count in (1, 5, 40):
            if way == "slept from outside":
                idle()
            said = [one.outputs[0] for one in engine[0].generate(
                prompts[:count], wanted, use_tqdm=False)]
            found[f"tokens of {count}"] = numpy.array([one.token_ids for one in said])
            found[f"likelihoods of {count}"] = numpy.array(
                [[value.logprob for step in one.logprobs for value in step.values()]
                 for one in said])
        if way == "sleep":
            before = torch.cuda.mem_get_info()[0]
            engine[0].sleep(level=1)
            found["memory comes back"] = torch.cuda.mem_get_info()[0] - before > 1 << 30
            engine[0].wake_up()
        return found
    return round_, vllm


def hypre(way):
    """Its own driver: conjugate gradients, preconditioned with algebraic multigrid."""
    import hypre
    command = [hypre.__path__[0] + "/ij", *"-n 128 128 128 -solver 1 -rhsrand".split(),
               "-exec_device", "-memory_device"]

    def number(words, said):
        return [float(one) for one in re.findall(words + r"\s*= ([-+.\de]+)", said)]

    def round_():
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        return {"iterations": str(number("Iterations", said)),
                "residual": numpy.array(number("Final Relative Residual Norm", said)),
                "seconds": sum(number("wall clock time", said))}
    return round_, hypre


def collectives(torch, distributed, me, rows, queues, meet):
    """NCCL's, eager and captured."""
    for size in (1 << 10, 1 << 16, 1 << 20, 1 << 22) * 5:
        part, whole = rows[:size] * 2, torch.empty(2 * size, device="cuda")
        distributed.all_reduce(part)
        distributed.all_gather_into_tensor(whole, part + me)
        piece = torch.empty(size // 2, device="cuda")
        distributed.reduce_scatter_tensor(piece, part * whole[:size])
        yield piece
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        part = rows * 1.5
        distributed.all_reduce(part)
        answer = part + rows
    for _ in range(20):
        rows.mul_(0.9)
        graph.replay()
        yield answer


def handles(torch, distributed, me, rows, queues, meet):
    """Each opens the other one's memory, reads it, and writes into it."""
    for size in (1, 1000, 1 << 16, 1 << 22) * 5:
        mine = rows[:size] + size
        queues[1 - me].put(mine)
        other = queues[me].get()
        yield other.to(mine.device) + mine
        torch.cuda.synchronize()
        meet.wait()
        other.add_(1)
        torch.cuda.synchronize(other.device)
        del other
        meet.wait()
        yield mine


def rank(me, way, place, *more):
    """One of two processes, each with its own device; handles also work within one."""
    import torch
    from torch import distributed
    torch.cuda.set_device(me % torch.cuda.device_count())
    torch.manual_seed(me)
    distributed.init_process_group("gloo" if way == "handles" else "nccl",
                                   f"file://{place}/meet", None, 2, me)
    rows = torch.randn(1 << 22, device="cuda")
    distributed.all_reduce(rows.clone())
    torch.cuda.synchronize()
    start, work = time.perf_counter(), globals()[way](torch, distributed, me, rows, *more)
    found = torch.cat([answer[:512].clone() for answer in work]).cpu().numpy()
    numpy.savez(f"{place}/{me}.npz", seconds=time.perf_counter() - start, found=found)
    distributed.destroy_process_group()


def devices(way):
    import torch

    def round_():
        with tempfile.TemporaryDirectory() as place:
            made = torch.multiprocessing.get_context("spawn")
            torch.multiprocessing.spawn(rank, (way, place, [made.Queue(), made.Queue()],
                                               made.Barrier(2)), nprocs=2)
            said = [numpy.load(f"{place}/{me}.npz") for me in range(2)]
            return {**{f"rank {me}": one["found"] for me, one in enumerate(said)},
                    "seconds": float(max(one["seconds"] for one in said))}
    return round_, torch


sharing = devices


def mpi(way):
    """Two ranks on one device exchange memory of it, made anew each time, through UCX."""
    import mpi4py
    code = """if True:
        import hashlib, time
        import cupy
        from mpi4py import MPI
        world, seen = MPI.COMM_WORLD, hashlib.sha256()
        me, other = world.rank, 1 - world.rank
        cupy.cuda.Device(me % cupy.cuda.runtime.getDeviceCount()).use()
        cupy.cuda.set_allocator(None)
        def turn(number):
            out = cupy.arange((1 << 10) + 131072 * (number % 7), dtype=float) * (number + 1) + me
            back = cupy.empty_like(out)
            cupy.cuda.Stream.null.synchronize()
            world.Sendrecv(out, other, number, back, other, number)
            seen.update((back * out).get().tobytes())
        turn(0)
        start = time.perf_counter()
        for number in range(100):
            turn(number)
        print("rank", me, seen.hexdigest()[:16], time.perf_counter() - start, flush=True)
    """
    tls = "sm,self,cuda_copy" + (",cuda_ipc" if way == "IPC" else "")
    command = ["mpirun", "-n", "2", "--allow-run-as-root", "--oversubscribe", "--mca", "pml", "ucx",
               "--mca", "opal_common_ucx_tls", "any", "--mca", "opal_common_ucx_devices", "any",
               "-x", f"UCX_TLS={tls}", sys.executable, "-c", code]

    def round_():
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        found = re.findall(r"rank (\d) (\w+) ([\d.]+)", said)
        return {**{f"rank {me}": seen for me, seen, _ in found},
                "seconds": max(float(seconds) for _, _, seconds in found)}
    return round_, mpi4py


def mps(way):
    """Two processes at once under the Multi-Process Service, which is started for them."""
    import cupy
    code = """if True:
        import hashlib
        import cupy
        cupy.cuda.set_allocator(None)
        seen = hashlib.sha256()
        for number in range(300):
            one = cupy.arange(1 << (10 + number % 12))
            seen.update(cupy.cumsum(one * number + one % 7).get().tobytes())
        print(seen.hexdigest()[:16])
    """

    def round_():
        with tempfile.TemporaryDirectory() as place:
            env = {**os.environ, "CUDA_MPS_PIPE_DIRECTORY": place, "CUDA_MPS_LOG_DIRECTORY": place}
            control = ["nvidia-cuda-mps-control"]
            plain = {name: value for name, value in env.items() if name != "LD_PRELOAD"}
            subprocess.run([*control, "-d"], check=True, env=plain)
            try:
                pair = [subprocess.Popen([sys.executable, "-c", code], env=env, text=True,
                                         stdout=subprocess.PIPE) for _ in range(2)]
                found = {f"process {me}": one.communicate()[0].strip()
                         for me, one in enumerate(pair)}
                servers = subprocess.run(control, input="get_server_list\n", env=plain, text=True,
                                         capture_output=True, check=False).stdout
                return {**found, "a server": servers.strip().isdigit()}
            finally:
                subprocess.run(control, input="quit\n", env=plain, text=True, check=False)
    return round_, cupy


def onnxruntime(way):
    """A network of convolutions: many sizes from the arena, or one as a CUDA graph."""
    import onnx
    import onnxruntime
    from onnx import helper
    weights, nodes, name = [], [], "x"
    for layer in range(12):
        kernel = (numbers(layer, 64, 64 if layer else 3, 3, 3) - 0.5) * 0.2
        weights.append(onnx.numpy_helper.from_array(kernel, f"w{layer}"))
        nodes += [helper.make_node("Conv", [name, f"w{layer}"], [f"c{layer}"], pads=[1] * 4),
                  helper.make_node("Relu", [f"c{layer}"], [f"r{layer}"])]
        name = f"r{layer}"
    nodes.append(helper.make_node("GlobalAveragePool", [name], ["y"]))
    ends = [[helper.make_tensor_value_info(*end)] for end in (
        ("x", 1, ["n", 3, "h", "h"]), ("y", 1, ["n", 64, 1, 1]))]  # 1: float
    model = helper.make_model(helper.make_graph(nodes, "g", *ends, weights), ir_version=10,
                              opset_imports=[helper.make_opsetid("", 17)]).SerializeToString()
    options = {"cudnn_conv_algo_search": "HEURISTIC", "use_tf32": "0",
               "enable_cuda_graph": str(int(way == "graph"))}
    onnxruntime.preload_dlls()

    def round_():
        session = onnxruntime.InferenceSession(
            model, providers=[("CUDAExecutionProvider", options)])
        if session.get_providers()[0] != "CUDAExecutionProvider":
            raise RuntimeError("no CUDA execution provider")
        if way == "arena":
            return {str(size): session.run(None, {"x": numbers(size, 8, 3, size, size)})[0]
                    for size in [64, 96, 160, 224, 128, 256] * 5}
        place, answer = (onnxruntime.OrtValue.ortvalue_from_numpy(value, "cuda", 0)
                         for value in (numbers(0, 8, 3, 160, 160), numbers(0, 8, 64, 1, 1)))
        binding, found = session.io_binding(), []
        binding.bind_ortvalue_input("x", place)
        binding.bind_ortvalue_output("y", answer)
        for turn in range(30):
            place.update_inplace(numbers(turn, 8, 3, 160, 160))
            session.run_with_iobinding(binding)
            found.append(answer.numpy())
        return {"outputs": numpy.stack(found)}
    return round_, onnxruntime


def memory_saver(way):
    """Pause gives memory back, resume brings it with what was in it."""
    import torch
    import torch_memory_saver
    saver = torch_memory_saver.torch_memory_saver
    saver.hook_mode = "preload"

    def round_():
        with saver.region(enable_cpu_backup=True):
            kept = torch.arange(1 << 28, device="cuda", dtype=torch.int32)
        torch.cuda.synchronize()
        before = torch.cuda.mem_get_info()[0]
        saver.pause()
        back = torch.cuda.mem_get_info()[0] - before > 1 << 29
        saver.resume()
        good = bool((kept == torch.arange(1 << 28, device="cuda", dtype=torch.int32)).all())
        return {"memory comes back": back, "content is kept": good}
    return round_, torch_memory_saver


def checkpoint(way):
    """Another process is checkpointed by the driver, and goes on with its data."""
    import ctypes

    import cupy
    import pynvml
    code = ("import cupy, sys\nkept = cupy.arange(1 << 27)\n"
            "other = cupy.ones(1 << 20); del other\ncupy.cuda.Device().synchronize()\n"
            "print('up', flush=True); sys.stdin.readline()\n"
            "more = cupy.arange(1 << 27)\nprint(bool((kept == more).all()))")

    def used():
        pynvml.nvmlInit()
        return pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(0)).used

    def round_():
        cuda = ctypes.CDLL("libcuda.so.1")
        cuda.cuInit(0)
        child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE,
                                 stdout=subprocess.PIPE, text=True)
        child.stdout.readline()
        before, nothing, errors, held = used(), ctypes.create_string_buffer(256), [], []
        for call in ("Lock", "Checkpoint", "Restore", "Unlock"):
            errors.append(getattr(cuda, f"cuCheckpointProcess{call}")(child.pid, nothing))
            held.append(used())
        if any(errors):
            child.kill()
        return {"errors": str(errors), "memory comes back": before - held[1] > 1 << 29,
                "content is kept": child.communicate("go\n")[0].strip()}
    return round_, cupy


def idle():
    """Nothing is under way until the caller says so."""
    print("\nidle", flush=True)
    sys.stdin.readline()


def digest(value):
    """[hash, sum]: the sum is for results that differ from run to run."""
    if isinstance(value, (str, bool, int)):
        return [str(value), 0.0]
    value = numpy.ascontiguousarray(value)
    return [hashlib.sha256(value.tobytes()).hexdigest()[:16],
            float(numpy.abs(value.astype(numpy.float64)).sum())]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("way", nargs="?", default="")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cpu", action="store_true", help="only imports and data")
    arguments = parser.parse_args()
    round_, module = globals()[arguments.name](arguments.way)
    print("ready", flush=True)
    if arguments.cpu or not sys.stdin.readline():
        return
    times, results = [], []
    for _ in range(1 + arguments.rounds):
        start = time.perf_counter()
        found = round_()
        times.append(found.pop("seconds", time.perf_counter() - start))
        results.append({name: digest(value) for name, value in found.items()})
    version = getattr(module, "__version__", "")
    version = version if isinstance(version, str) else ".".join(map(str, version))
    print("\nresult " + json.dumps({"times": times, "results": results,
                                    "version": version}), flush=True)


if __name__ == "__main__":
    main()
