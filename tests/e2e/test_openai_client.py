"""The `openai` package against every endpoint, whole and streamed."""

import json

import openai
import pytest

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["city"],
        },
    },
}
TIME = {"type": "function", "function": {"name": "get_time", "parameters": {"type": "object"}}}
HELLO = [{"role": "user", "content": "Hello, who are you?"}]


@pytest.fixture(scope="module")
def client(server):
    return openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)


def test_models(client, server):
    names = [model.id for model in client.models.list()]
    assert server.model in names
    assert client.models.retrieve(server.model).id == server.model
    with pytest.raises(openai.NotFoundError) as caught:
        client.models.retrieve("another")
    assert caught.value.code == "model_not_found"


def test_chat_streamed_is_chat_whole(client, server):
    fields = {"model": server.model, "messages": HELLO, "temperature": 0, "max_tokens": 60}
    whole = client.chat.completions.create(**fields)
    choice = whole.choices[0]
    assert choice.message.role == "assistant"
    assert choice.finish_reason in ("stop", "length")
    assert whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens
    content, thoughts, finish, usage = "", "", None, None
    stream_fields = {**fields, "stream": True, "stream_options": {"include_usage": True}}
    for chunk in client.chat.completions.create(**stream_fields):
        assert chunk.object == "chat.completion.chunk"
        if chunk.usage:
            usage = chunk.usage
        for part in chunk.choices:
            content += part.delta.content or ""
            thoughts += getattr(part.delta, "reasoning_content", None) or ""
            finish = part.finish_reason or finish
    assert content == (choice.message.content or "")
    assert thoughts == (getattr(choice.message, "reasoning_content", None) or "")
    assert finish == choice.finish_reason
    assert usage.completion_tokens == whole.usage.completion_tokens


@pytest.mark.parametrize(
    "choice, name",
    [("required", None), ({"type": "function", "function": {"name": "get_time"}}, "get_time")],
)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("thinking", [False, True])
def test_forced_tool_call(client, server, choice, name, stream, thinking):
    fields = {
        "model": server.model,
        "messages": [{"role": "user", "content": "What is the weather in Paris?"}],
        "tools": [WEATHER, TIME],
        "tool_choice": choice,
        "parallel_tool_calls": False,
        "temperature": 0,
        "extra_body": {"chat_template_kwargs": {"thinking": thinking}},
    }
    if stream:
        calls, finish = {}, None
        for chunk in client.chat.completions.create(stream=True, **fields):
            finish = chunk.choices[0].finish_reason or finish
            for call in chunk.choices[0].delta.tool_calls or []:
                known = calls.setdefault(call.index, ["", "", ""])
                known[0] += call.id or ""
                known[1] += call.function.name or ""
                known[2] += call.function.arguments or ""
        found = list(calls.values())
    else:
        answer = client.chat.completions.create(**fields).choices[0]
        finish = answer.finish_reason
        found = [[c.id, c.function.name, c.function.arguments] for c in answer.message.tool_calls]
    assert finish == "tool_calls"
    assert len(found) == 1
    call_id, called, arguments = found[0]
    assert call_id.startswith(f"functions.{called}:")
    assert called == (name or called) and called in ("get_weather", "get_time")
    parsed = json.loads(arguments)
    assert isinstance(parsed, dict)
    if called == "get_weather":
        assert isinstance(parsed["city"], str)


def test_tool_result_is_taken(client, server):
    call = {
        "id": "functions.get_weather:0",
        "type": "function",
        "function": {"name": "get_weather", "arguments": '{"city": "Paris"}'},
    }
    messages = [
        {"role": "user", "content": "What is the weather in Paris?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call["id"], "content": '{"sky": "clear"}'},
    ]
    answer = client.chat.completions.create(
        model=server.model, messages=messages, tools=[WEATHER], temperature=0, max_tokens=40
    )
    assert answer.usage.prompt_tokens > 20


def test_chat_logprobs(client, server):
    answer = client.chat.completions.create(
        model=server.model, messages=HELLO, max_tokens=8, temperature=0, logprobs=True,
        top_logprobs=5, extra_body={"ignore_eos": True},
    )  # fmt: skip
    tokens = answer.choices[0].logprobs.content
    assert len(tokens) == 8 == answer.usage.completion_tokens
    for token in tokens:
        assert token.logprob <= 0
        assert len(token.top_logprobs) == 5
        values = [other.logprob for other in token.top_logprobs]
        assert values == sorted(values, reverse=True)
        # Greedy: the chosen one is the likeliest.
        assert values[0] == pytest.approx(token.logprob, abs=1e-6)
        assert bytes(token.bytes).decode(errors="replace") == token.token


def test_completions(client, server):
    fields = {"model": server.model, "prompt": "One, two, three", "temperature": 0}
    whole = client.completions.create(**fields, logprobs=2)
    choice = whole.choices[0]
    assert whole.usage.completion_tokens <= 16
    assert len(choice.logprobs.tokens) == len(choice.logprobs.text_offset)
    assert all(len(top) <= 2 for top in choice.logprobs.top_logprobs)
    text = "".join(c.choices[0].text for c in client.completions.create(**fields, stream=True))
    assert text == choice.text


def test_several_prompts_and_choices(client, server):
    answer = client.completions.create(
        model=server.model, prompt=["One", "Two two two two"], n=3, max_tokens=5, seed=7
    )
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3, 4, 5]
    again = client.completions.create(
        model=server.model, prompt=["One", "Two two two two"], n=3, max_tokens=5, seed=7
    )
    assert [c.text for c in answer.choices] == [c.text for c in again.choices]
    alone = client.completions.create(model=server.model, prompt="One", max_tokens=5, seed=7)
    assert alone.choices[0].text == answer.choices[0].text
    two = client.completions.create(model=server.model, prompt="Two two two two", max_tokens=1)
    assert answer.usage.prompt_tokens == alone.usage.prompt_tokens + two.usage.prompt_tokens


def test_stop_strings(client, server):
    fields = {"model": server.model, "prompt": "One, two", "temperature": 0, "max_tokens": 40}
    fields["extra_body"] = {"ignore_eos": True}
    full = client.completions.create(**fields).choices[0].text
    stop = full[5:9]
    expected = full[: full.index(stop)]
    cut = client.completions.create(**fields, stop=[stop]).choices[0]
    assert (cut.text, cut.finish_reason) == (expected, "stop")
    chunks = list(client.completions.create(**fields, stop=[stop], stream=True))
    assert "".join(c.choices[0].text for c in chunks) == expected
    assert chunks[-1].choices[0].finish_reason == "stop"


def test_stop_token_is_not_shown(client, server):
    fields = {"model": server.model, "prompt": "a", "temperature": 0, "max_tokens": 5}
    fields["logit_bias"] = {"65": 100}
    free = client.completions.create(**fields, extra_body={"ignore_eos": True})
    assert (len(free.choices[0].text), free.usage.completion_tokens) == (5, 5)
    stopped = client.completions.create(**fields, extra_body={"stop_token_ids": [65]})
    assert (stopped.choices[0].text, stopped.choices[0].finish_reason) == ("", "stop")
    assert stopped.usage.completion_tokens == 1


def test_sampling_fields_change_the_answer(client, server):
    fields = {"model": server.model, "prompt": "Tell", "max_tokens": 24}
    fields["extra_body"] = {"ignore_eos": True}
    greedy = client.completions.create(**fields, temperature=0).choices[0].text
    one = client.completions.create(**fields, seed=1, temperature=2).choices[0].text
    two = client.completions.create(**fields, seed=2, temperature=2).choices[0].text
    assert len({greedy, one, two}) == 3
    top_1 = {**fields, "extra_body": {"ignore_eos": True, "top_k": 1}}
    assert client.completions.create(**top_1, seed=1).choices[0].text == greedy
    biased = client.completions.create(**fields, temperature=0, logit_bias={"65": 100})
    assert len(set(biased.choices[0].text)) == 1


def test_second_turn_reuses_the_first(client, server):
    messages = [{"role": "user", "content": "Repeat: " + "alpha beta gamma delta " * 20}]
    first = client.chat.completions.create(
        model=server.model, messages=messages, temperature=0, max_tokens=4
    )
    second = client.chat.completions.create(
        model=server.model, messages=messages, temperature=0, max_tokens=4
    )
    assert second.usage.prompt_tokens_details.cached_tokens >= 64
    assert second.choices[0].message.content == first.choices[0].message.content


@pytest.mark.parametrize(
    "fields, error, code",
    [
        ({"model": "another"}, openai.NotFoundError, "model_not_found"),
        ({"temperature": 3}, openai.BadRequestError, "decimal_above_max_value"),
        ({"max_tokens": 10**6}, openai.BadRequestError, "context_length_exceeded"),
        ({"response_format": {"type": "json_object"}}, openai.BadRequestError,
         "unsupported_parameter"),
    ],
)  # fmt: skip
def test_errors(client, server, fields, error, code):
    with pytest.raises(error) as caught:
        client.chat.completions.create(**{"model": server.model, "messages": HELLO, **fields})
    assert caught.value.code == code
    assert caught.value.type == "invalid_request_error"
    assert caught.value.response.headers["x-request-id"]


def test_endpoints_for_operators_of_sglang(server):
    assert server.get_json("/health") == {"status": "ok"}
    assert server.get("/ping")[0] == 200
    assert server.get_json("/health_generate") == {"status": "ok"}
    for path in ("/server_info", "/get_server_info"):
        info = server.get_json(path)
        assert info["version"] and info["internal_states"][0]["steps"] > 0
        assert "api_key" not in json.dumps(info)
    for path in ("/model_info", "/get_model_info"):
        assert server.get_json(path)["is_generation"] is True
    metrics = server.metrics()
    for name in ("num_running_reqs", "num_queue_reqs", "token_usage", "max_total_num_tokens",
                 "prompt_tokens_total", "generation_tokens_total", "cached_tokens_total",
                 "time_to_first_token_seconds_count", "inter_token_latency_seconds_count",
                 "e2e_request_latency_seconds_count"):  # fmt: skip
        assert "sglang:" + name in metrics
    assert metrics["sglang:generation_tokens_total"] > 0
    status, headers, body = server.request("GET", "/")
    assert status == 200 and b"<title>Quire</title>" in body
    assert "Content-Security-Policy" in headers
