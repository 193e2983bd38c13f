"""The layers of a model by nothing but the names of its kernels in their order: shares no code, table or rule of names with
brickscope.

The period is that of the longest run in which name i is name i + p. It has as many layers as attentions. A layer begins at
the first norm behind the activation of the one before. Its number is that of the attentions before it.
"""

import re

# The periods that are tried, and how often one has to repeat.
PERIODS = range(3, 400)
LEAST = 4


def is_norm(name):
    return "norm" in name.lower()


def is_activation(name):
    return re.search("silu|swiglu|gelu|act_and_mul", name.lower()) is not None


def is_attention(name):
    return re.search("attention|attn|fmha", name.lower()) is not None


def longest(names):
    """Period, begin and end of the run that covers most."""
    best = (0, 0, 0, 0)
    for period in PERIODS:
        if period * LEAST > len(names):
            break
        run = 0
        for at in range(len(names) - period):
            run = run + 1 if names[at] == names[at + period] else 0
            covered = run + period
            # Of multiples of a period, the smallest.
            if run >= period * (LEAST - 1) and covered > best[0]:
                best = (covered, period, at - run + 1, at + 1 + period)
    return best[1:]


def layers(names):
    """The layer of each kernel, `None` outside of the run, and the period, how often it comes, and how many layers it has."""
    period, begin, end = longest(names)
    if not period:
        return [None] * len(names), 0, 0, 0
    attentions, behind = [], False
    for name in names:
        attentions.append(is_attention(name) and not behind)
        behind = is_attention(name)
    starts, is_open = [], True
    for at, name in enumerate(names[:end]):
        if is_activation(name):
            is_open = True
        elif is_norm(name) and is_open:
            starts.append(at)
            is_open = False
    # The layer that the run begins in is whole, but those before it aren't of the run.
    first = max((nth for nth, at in enumerate(starts) if at <= begin), default=0)
    of = [None] * len(names)
    for at, to in zip(starts[first:], [*starts[first + 1:], end]):
        # What comes behind the last layer is none, such as a last norm.
        if sum(attentions[at:to]) == 1:
            of[at:to] = [sum(attentions[:at])] * (to - at)
    return of, period, (end - begin) / period, sum(attentions[begin:begin + period])
