"""Chat format of the family kimi-k2.6: messages in, token ids out.

Template marks and content are separate segments, so user text can never become a special token.
Tool declarations are the TypeScript text that Kimi K2.5 and later were trained on.
"""

import json

from tokenizer import SPECIALS

IM_END = SPECIALS["<|im_end|>"]
THINK = SPECIALS["<think>"]
END_THINK = SPECIALS["</think>"]
CONSTRAINTS = {
    "string": ("maxLength", "minLength", "pattern"),
    "number": ("maximum", "minimum"),
    "integer": ("maximum", "minimum"),
    "array": ("maxItems", "minItems"),
}


def sort_keys(value):
    if isinstance(value, dict):
        return {key: sort_keys(value[key]) for key in sorted(value)}
    if isinstance(value, list):
        return [sort_keys(item) for item in value]
    return value


def _default_text(value):
    return str(value) if isinstance(value, (bool, int, float)) else json.dumps(value)


def _doc_lines(schema):
    lines = [f"// {line}" for line in schema.get("description", "").splitlines()]
    names = CONSTRAINTS.get(schema.get("type"), ()) if isinstance(schema.get("type"), str) else ()
    limits = [f"{name}: {schema[name]}" for name in names if name in schema]
    if limits:
        lines.append("// " + ", ".join(limits))
    if schema.get("default") is not None:
        lines.append(f"// Default: {_default_text(schema['default'])}")
    return lines


def _object_text(schema, indent):
    properties = schema.get("properties", {})
    required = set(schema.get("required", []))
    pad = "  " * (indent + 1)
    members = []
    for name in sorted(properties, key=lambda n: (n not in required, n)):
        lines = _doc_lines(properties[name])
        mark = "" if name in required else "?"
        lines.append(f"{name}{mark}: {type_text(properties[name], indent + 1)}")
        members.append("\n".join(pad + line for line in lines))
    extra = schema.get("additionalProperties")
    if extra is False:
        members.append(f"{pad}[k: string]: never")
    elif isinstance(extra, dict):
        members.append(f"{pad}[k: string]: {type_text(extra, indent + 1)}")
    if not members:
        return "{}"
    return "{\n" + ",\n".join(members) + "\n" + "  " * indent + "}"


def _array_text(schema, indent):
    items = schema.get("items")
    if not items:
        return "Array<any>"
    docs = _doc_lines(items)
    if not docs:
        return f"Array<{type_text(items, indent)}>"
    pad = "  " * (indent + 1)
    lines = [pad + line for line in docs] + [pad + type_text(items, indent + 1)]
    return "Array<\n" + "\n".join(lines) + "\n" + "  " * indent + ">"


def type_text(schema, indent):
    """TypeScript type of a JSON schema. Multi-line objects are indented by two spaces a level."""
    if "$ref" in schema:
        return schema["$ref"].split("/")[-1]
    if "enum" in schema:
        return " | ".join(json.dumps(value, ensure_ascii=False) for value in schema["enum"])
    if "anyOf" in schema:
        return " | ".join(type_text(option, indent) for option in schema["anyOf"])
    kind = schema.get("type")
    if isinstance(kind, list):
        return " | ".join(type_text({**schema, "type": one}, indent) for one in kind)
    if kind == "object":
        return _object_text(schema, indent)
    if kind == "array":
        return _array_text(schema, indent)
    return {"integer": "number", None: "any"}.get(kind, kind)


def declare_tools(tools):
    """The text of the tool_declare turn."""
    blocks = []
    for tool in sort_keys(tools):
        function = tool["function"]
        schema = function.get("parameters") or {"type": "object", "properties": {}}
        lines = []
        for name, definition in schema.get("$defs", {}).items():
            lines.append(f"interface {name} {type_text(definition, 0)}")
        lines += [f"// {line}" for line in function.get("description", "").splitlines()]
        lines.append(f"type {function['name']} = (_: {type_text(schema, 0)}) => any;")
        blocks.append("\n".join(lines))
    return "# Tools\n\n## functions\nnamespace functions {\n" + "\n".join(blocks) + "\n}\n"


class Dialogue:
    """A conversation as ids, with a loss mask over what the assistant writes."""

    def __init__(self, tokenizer, tools=None, system=None):
        self.tokenizer = tokenizer
        self.ids = []
        self.mask = []
        self.calls = 0
        if tools:
            self._turn("<|im_system|>", "tool_declare", declare_tools(tools))
        if system:
            self._turn("<|im_system|>", "system", system)

    def _append(self, ids, learn):
        self.ids += ids
        self.mask += [1 if learn else 0] * len(ids)

    def _turn(self, mark, role, body_text):
        encode = self.tokenizer.encode_memo
        body = self.tokenizer.encode(body_text) if role == "user" else encode(body_text)
        head = [SPECIALS[mark], *encode(role), SPECIALS["<|im_middle|>"]]
        self._append([*head, *body, IM_END], learn=False)

    def user(self, text):
        self._turn("<|im_user|>", "user", text)

    def user_ids(self, ids):
        """A user turn whose content is already tokenized."""
        head = [SPECIALS["<|im_user|>"], *self.tokenizer.encode_memo("user")]
        self._append([*head, SPECIALS["<|im_middle|>"], *ids, IM_END], learn=False)

    def tool(self, call_id, content, name="tool"):
        mark = SPECIALS["<|im_middle|>"]
        head = [SPECIALS["<|im_system|>"], *self.tokenizer.encode_memo(name), mark]
        body = self.tokenizer.encode(f"## Return of {call_id}\n{content}")
        self._append([*head, *body, IM_END], learn=False)

    def open_assistant(self, thinking):
        """The generation prompt: `<think>` when it may think, else `<think></think>`."""
        head = [SPECIALS["<|im_assistant|>"], *self.tokenizer.encode_memo("assistant")]
        self._append([*head, SPECIALS["<|im_middle|>"], THINK], learn=False)
        if not thinking:
            self._append([END_THINK], learn=False)

    def answer(self, content, calls=(), reasoning=None):
        """What the assistant writes after the generation prompt; ends the turn."""
        encode = self.tokenizer.encode
        if reasoning is not None:
            self._append([*encode(reasoning), END_THINK], learn=True)
        self._append([*self.answer_ids(content, calls), IM_END], learn=True)
        self.calls += len(calls)

    def answer_ids(self, content, calls=()):
        """Ids after the thoughts and before the end of the turn. `calls` is [(name, arguments)]."""
        encode = self.tokenizer.encode
        ids = encode(content)
        if calls:
            ids.append(SPECIALS["<|tool_calls_section_begin|>"])
            for index, (name, arguments) in enumerate(calls, start=self.calls):
                ids.append(SPECIALS["<|tool_call_begin|>"])
                ids += encode(f"functions.{name}:{index}")
                ids.append(SPECIALS["<|tool_call_argument_begin|>"])
                ids += encode(json.dumps(arguments, ensure_ascii=False))
                ids.append(SPECIALS["<|tool_call_end|>"])
            ids.append(SPECIALS["<|tool_calls_section_end|>"])
        return ids
