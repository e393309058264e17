"""Many tenants in a pool that is always full: no answer may hold what another request said.

Every prompt asks kimi-nano for a phrase of its own, so that an answer shows whose pages it was read
from. On a CPU a request's bytes do not depend on the others': an answer that is not its own phrase
is asked for again, alone, and must be the same then (a mistake of the model's, not another's page).

    python3 tests/e2e/contamination.py --binary build/quire --requests 106000 --servers 8

The last line is a JSON object: the `requests` that were sent, the `answers` to them, `left` (by
clients that did not wait for theirs), and how many answers were `foreign`, `changed`, or
`mistakes`. Ends with 1 when an answer held another's phrase, or changed. `test_contamination.py` is
the same under pytest.
"""

import argparse
import asyncio
import collections
import concurrent.futures
import json
import pathlib
import random
import sys
import tempfile
import time

from quire_server import QuireServer

STREAMS = 48
TENANTS = 24
ABORTED = 0.05
REPEATED = 0.1  # asked twice by one tenant, which may meet its own pages
NEW_TOKENS = 8
MISTAKES = 0.02  # copying is what the model does well: were it not, nothing would have been shown
# A page is 64 tokens, and a request has two: the pool holds 24 of the 48.
FLAGS = ("--max-total-tokens", "3072", "--context-length", "128")

# "Say exactly this:", ten groups of four digits, and the answer's begin, in kimi-nano's tokens, of
# which digits and blanks are one each: 63 in, 8 out.
HEAD = [4099, 367, 256, 4113, 3386, 3239, 1518, 1485]
TAIL = [4098, 4100, 1242, 4113, 4118, 4119]


class Asked:
    """A phrase whose first eight characters no other phrase of the run begins with."""

    def __init__(self, number, rng):
        first = f"{number:07d}"
        groups = [first[:4], first[4:] + str(rng.randrange(10))]
        groups += [f"{rng.randrange(10000):04d}" for _ in range(8)]
        self.phrase = " ".join(groups)
        self.tenant = rng.randrange(TENANTS)
        self.leaves = rng.random() < ABORTED
        self.is_sent = False
        self.answer = None

    @property
    def expected(self):
        return self.phrase[:NEW_TOKENS]

    def again(self):
        """The same, from a client that stays."""
        other = Asked(0, random.Random(0))
        other.phrase, other.tenant, other.leaves = self.phrase, self.tenant, False
        return other

    def body(self, model):
        prompt = HEAD + [ord(c) for c in self.phrase] + TAIL
        assert len(prompt) <= 64
        return {"model": model, "prompt": prompt, "max_tokens": NEW_TOKENS, "temperature": 0}


async def ask(server, asked):
    data = json.dumps(asked.body(server.model)).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(
        b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
        b"Authorization: Bearer key-%d\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
        % (asked.tenant, len(data))
        + data
    )
    await writer.drain()
    asked.is_sent = True
    if asked.leaves:
        await asyncio.sleep(0.002)
    else:
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 "), head
        asked.answer = json.loads(body)["choices"][0]["text"]
    writer.close()


async def client(server, questions):
    for asked in questions:
        await ask(server, asked)


async def ask_all(server, questions):
    """All of them, one after the other in each of STREAMS clients."""
    left = iter(questions)
    await asyncio.gather(*(client(server, left) for _ in range(STREAMS)))


def until(questions, seconds):
    """The questions that are begun within so many seconds."""
    end = time.monotonic() + seconds
    for asked in questions:
        if time.monotonic() > end:
            return
        yield asked


def questions_of(n, rng):
    numbers = rng.sample(range(10**7), n)
    out = []
    for number in numbers:
        out.append(Asked(number, rng))
        if rng.random() < REPEATED:
            again = Asked(number, rng)
            again.phrase, again.tenant = out[-1].phrase, out[-1].tenant
            out.append(again)
    return out[:n]


def foreign_answers(questions):
    """Pairs: a question that was answered, and the other one whose phrase the answer begins."""
    by_begin = {asked.expected: asked for asked in questions}
    return [
        (asked.phrase, by_begin[asked.answer].phrase)
        for asked in questions
        if asked.answer is not None
        and asked.answer != asked.expected
        and asked.answer in by_begin
    ]


def write_keys(folder):
    keys = pathlib.Path(folder) / "keys"
    keys.write_text("".join(f"tenant-{i} key-{i}\n" for i in range(TENANTS)))
    return ("--api-key-file", str(keys))


def judge(server, questions):
    """What the answers came to, and a list of what is wrong with them."""
    metrics = server.wait_idle()
    answered = [asked for asked in questions if asked.answer is not None]
    foreign = foreign_answers(questions)
    mistakes = [asked for asked in answered if asked.answer != asked.expected]
    wrong = [f"{phrase}: the answer is of {other}" for phrase, other in foreign]
    changed = 0
    for asked in mistakes:
        alone = asked.again()
        asyncio.run(ask(server, alone))
        if alone.answer != asked.answer:
            changed += 1
            wrong.append(f"{asked.phrase}: {asked.answer!r}, and alone {alone.answer!r}")
    if len(mistakes) > MISTAKES * len(answered):
        wrong.append(f"{len(mistakes)} mistakes of the model's in {len(answered)} answers")
    if metrics["quire:requests_failed_total"] != 0:
        wrong.append("requests failed")
    if server.audit() != (200, {"clean": True}):
        wrong.append(f"audit: {server.audit()}")
    counts = {
        "requests": sum(asked.is_sent for asked in questions),
        "answers": len(answered),
        "left": sum(asked.is_sent and asked.leaves for asked in questions),
        "foreign": len(foreign),
        "changed": changed,
        "mistakes": len(mistakes),
    }
    return counts, wrong


def run_server(options, number, seed):
    """One server and its share of the requests."""
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        flags = (*FLAGS, *write_keys(folder), "--integrity", options.integrity)
        if options.threads:
            flags += ("--threads", str(options.threads))
        log = pathlib.Path(folder) / "log"
        with QuireServer(options.binary, options.model_path, *flags, log_path=log) as server:
            questions = questions_of(options.requests // options.servers, rng)
            asyncio.run(ask_all(server, until(questions, options.seconds)))
            return judge(server, questions)


def main():
    root = pathlib.Path(__file__).resolve().parents[2]
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", default=str(root / "build" / "quire"))
    parser.add_argument("--model-path", default=str(root / "models" / "kimi-nano"))
    parser.add_argument("--requests", type=int, default=2000, help="in all")
    parser.add_argument("--seconds", type=float, default=86400, help="no new requests after these")
    parser.add_argument("--servers", type=int, default=1, help="at once, each with its share")
    parser.add_argument("--threads", type=int, default=0, help="of each server (all cores)")
    parser.add_argument("--integrity", default="full")
    options = parser.parse_args()
    seed = random.randrange(2**32)
    total = collections.Counter()
    wrong = []
    numbers = range(options.servers)
    with concurrent.futures.ProcessPoolExecutor(options.servers) as pool:
        runs = [pool.submit(run_server, options, n, seed + n) for n in numbers]
        for run in runs:
            counts, found = run.result()
            wrong += found
            total.update(counts)
    print(json.dumps({"seed": seed, **total}))
    for what in wrong[:20]:
        print(what, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
