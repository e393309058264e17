"""Completions that repeat their prompt with log-probabilities, by the `openai` package."""

import openai
import pytest

STORY = "Mia has 14 apples. Mia buys 9 more. How many apples does Mia have now?"
HELLO = [{"role": "user", "content": "Hello"}]


@pytest.fixture(scope="module")
def client(server):
    return openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)


@pytest.fixture(scope="module")
def complete(client, server):
    """The choices of a completion."""
    return lambda **fields: client.completions.create(model=server.model, **fields).choices


def tokenize(server, text):
    status, answer = server.post("/tokenize", {"prompt": text})
    assert status == 200, answer
    assert answer["count"] == len(answer["tokens"])
    return answer["tokens"]


def test_a_prompt_alone(complete, server):
    choice = complete(prompt=STORY, echo=True, logprobs=3, max_tokens=0)[0]
    said = choice.logprobs
    assert choice.text == STORY == "".join(said.tokens)
    assert choice.finish_reason == "length"
    assert len(said.tokens) == len(tokenize(server, STORY))
    assert (said.token_logprobs[0], said.top_logprobs[0]) == (None, None)
    for token, logprob, top in zip(said.tokens[1:], said.token_logprobs[1:], said.top_logprobs[1:]):
        assert len(top) == 3
        assert logprob <= max(top.values()) < 0
        assert top.get(token, logprob) == logprob
    assert said.text_offset == [sum(map(len, said.tokens[:i])) for i in range(len(said.tokens))]


def test_what_was_generated_is_scored_as_it_was_chosen(complete, server):
    prompt = tokenize(server, STORY)
    fields = {"temperature": 0, "logprobs": 2, "max_tokens": 40, "extra_body": {"ignore_eos": True}}
    chosen = complete(prompt=prompt, **fields)[0].logprobs
    # A token by its text: special ones by name, and others as far as their text is one token.
    ids = [tokenize(server, token) for token in chosen.tokens]
    same = next((i for i, found in enumerate(ids) if len(found) != 1), len(ids))
    assert same >= 8
    answer = [found[0] for found in ids[:same]]
    scored = complete(prompt=[prompt + answer], echo=True, **fields)[0].logprobs
    n = len(prompt)
    assert scored.tokens[n : n + same] == chosen.tokens[:same]
    expected = pytest.approx(chosen.token_logprobs[:same], abs=1e-5)
    assert scored.token_logprobs[n : n + same] == expected
    for found, top in zip(scored.top_logprobs[n : n + same], chosen.top_logprobs):
        assert found == pytest.approx(top, abs=1e-5)


def test_cached_or_not_and_beside_others_the_numbers_are_the_same(complete, server):
    text = " ".join(f"{i} and {i + 1}." for i in range(120))
    first = complete(prompt=text, echo=True, logprobs=1, max_tokens=1, temperature=0)[0]
    assert complete(prompt=text, max_tokens=1, temperature=0)[0].text
    again = complete(prompt=[text, STORY, text], echo=True, logprobs=1, max_tokens=1, temperature=0)
    assert [choice.text for choice in again] == [first.text, again[1].text, first.text]
    for choice in (again[0], again[2]):
        assert choice.logprobs.token_logprobs == first.logprobs.token_logprobs
        assert choice.logprobs.top_logprobs == first.logprobs.top_logprobs
    # Sampling settings are for the answer: the prompt is scored by the model as it is.
    hot = complete(
        prompt=text, echo=True, logprobs=1, max_tokens=1, temperature=2, presence_penalty=2, seed=1
    )[0]
    n = len(first.logprobs.tokens) - 1
    assert hot.logprobs.token_logprobs[:n] == first.logprobs.token_logprobs[:n]


def test_an_echo_is_streamed(client, complete, server):
    fields = {"prompt": STORY, "echo": True, "logprobs": 1, "max_tokens": 5, "temperature": 0}
    whole = complete(**fields)[0]
    text, tokens, logprobs, offsets = "", [], [], []
    for event in client.completions.create(model=server.model, stream=True, **fields):
        for choice in event.choices:
            text += choice.text
            if choice.logprobs:
                tokens += choice.logprobs.tokens
                logprobs += choice.logprobs.token_logprobs
                offsets += choice.logprobs.text_offset
    assert (text, tokens) == (whole.text, whole.logprobs.tokens)
    assert logprobs == whole.logprobs.token_logprobs
    assert offsets == whole.logprobs.text_offset


def test_echo_without_logprobs(complete):
    plain = complete(prompt=STORY, max_tokens=6, temperature=0)[0]
    echoed = complete(prompt=STORY, echo=True, max_tokens=6, temperature=0)[0]
    assert echoed.text == STORY + plain.text
    assert echoed.logprobs is None


@pytest.mark.parametrize(
    "path, fields, param",
    [
        ("completions", {"prompt": "a", "echo": True, "logprobs": 21}, "logprobs"),
        ("completions", {"prompt": "a", "max_tokens": 0}, "max_tokens"),
        ("completions", {"prompt": "a", "echo": "yes"}, "echo"),
        ("completions", {"prompt": [7] * 4096, "echo": True, "max_tokens": 0}, "prompt"),
        ("chat/completions", {"messages": HELLO, "echo": True}, "echo"),
    ],
)
def test_refusals(server, path, fields, param):
    status, answer = server.post(f"/v1/{path}", {"model": server.model, **fields})
    assert status == 400
    assert answer["error"]["param"] == param


def test_the_tokenizer_over_http(server):
    text = "Grüße, 14 apples\n"
    tokens = tokenize(server, text)
    status, back = server.post("/detokenize", {"tokens": tokens})
    assert (status, back["prompt"]) == (200, text)
    info = server.get_json("/tokenizer_info")
    assert len(tokenize(server, info["eos_token"])) == 1
    # In a longer text it is what it is: ten plain characters.
    assert len(tokenize(server, "a" + info["eos_token"])) > 2
    for path, body in [
        ("/tokenize", {}),
        ("/tokenize", {"prompt": 5}),
        ("/tokenize", {"prompt": "a" * 70_000}),
        ("/tokenize", b"["),
        ("/detokenize", {"tokens": "a"}),
        ("/detokenize", {"tokens": [-1]}),
        ("/detokenize", {"tokens": [10**9]}),
    ]:
        assert server.post(path, body)[0] == 400, (path, body)
