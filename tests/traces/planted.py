"""Traces of a job's ranks with known answers: who comes when to each collective, and how long each transfers."""

import json
import random


class Job:
    """`late` says by how many microseconds a rank comes later to each collective, beside chance of up to `chance` µs. Clocks of
    ranks are `ahead` of the first one's. With `is_numbered`, kernels state their number in the group, as newer files do."""

    def __init__(self, ranks, steps, layers, late, chance=0, ahead=None, is_numbered=False, seed=1):
        self.ranks, self.is_numbered = ranks, is_numbered
        self.ahead = ahead or [0] * ranks
        rng = random.Random(seed)
        # Of each collective: its step, its layer, when each rank begins it, and when it ends on all, in nanoseconds.
        self.collectives = []
        self.steps = []
        now = 1_000_000
        for step in range(steps):
            begin = now
            for layer in range(layers):
                # No two gaps are alike, so that clocks fit in one way only.
                compute = 150_000 + rng.randrange(80_000)
                come = [now + compute + 1000 * late[rank] + rng.randrange(1 + 1000 * chance) for rank in range(ranks)]
                end = max(come) + 20_000 + rng.randrange(15_000)
                self.collectives.append((step, layer, now, come, end))
                now = end + 5_000
            self.steps.append((begin, now))
            now += 90_000 + rng.randrange(40_000)

    def trace(self, rank):
        events = []

        def add(cat, name, begin, end, pid, tid, **args):
            begin, end = begin + self.ahead[rank], end + self.ahead[rank]
            events.append({"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": begin / 1000,
                           "dur": (end - begin) / 1000, "args": args})

        for begin, end in self.steps:
            # Where the host launches ahead, and ends before its device does.
            add("user_annotation", "execute_context_0(0)_generation_32(32)", begin, begin + (end - begin) // 2, 4000, 4000)
        number = 0
        for nth, (step, layer, at, come, end) in enumerate(self.collectives):
            begin, _ = self.steps[step]
            launch = begin + 2_000 * (1 + 4 * layer)
            add("user_annotation", f"model.layers.{layer}.mlp", launch, launch + 7_000, 4000, 4000)
            for place, (name, start, stop, more) in enumerate([
                ("gemm_kernel", at + 1_000, come[rank], {}),
                ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", come[rank], end, {
                    "Collective name": "allreduce", "In msg nelems": 131072, "Out msg nelems": 131072, "dtype": "BFloat16",
                    "Group size": self.ranks, "Process Group Name": "tp", "Process Group Ranks": str(list(range(self.ranks))),
                    **({"Seq": 900 + nth} if self.is_numbered else {})}),
            ]):
                number += 1
                call = launch + 1_000 + 2_000 * place
                add("cuda_runtime", "cudaLaunchKernel", call, call + 1_000, 4000, 4000, correlation=number)
                add("kernel", name, start, stop, rank, 7, device=rank, stream=7, correlation=number, **more)
        return {
            "schemaVersion": 1, "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": self.ranks},
            "baseTimeNanoseconds": 1790857026000000000, "traceEvents": events,
        }

    def write(self, folder):
        folder.mkdir(parents=True)
        for rank in range(self.ranks):
            (folder / f"rank{rank}.pt.trace.json").write_text(json.dumps(self.trace(rank)))
        return [folder / f"rank{rank}.pt.trace.json" for rank in range(self.ranks)]

    def truth(self):
        """Of each rank: transfer and wait. The shortest time of a collective is its transfer."""
        sums = {rank: [0, 0] for rank in range(self.ranks)}
        for *_, come, end in self.collectives:
            for rank in range(self.ranks):
                sums[rank][0] += end - max(come)
                sums[rank][1] += max(come) - come[rank]
        return sums

    def lasts(self, lead_ns=2_000):
        """Of how many collectives each rank is the last by more than the others, of those in which one clearly is."""
        lasts = []
        for *_, come, _ in self.collectives:
            before, last = sorted(range(self.ranks), key=come.__getitem__)[-2:]
            if come[last] - come[before] >= lead_ns:
                lasts.append(last)
        return lasts
