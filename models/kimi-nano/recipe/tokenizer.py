"""Kimi's tokenizer: byte-level BPE over a rank table, with special tokens after the ranks.

Reads `tiktoken.model` (one `base64 rank` a line). There is no merges file: of all adjacent pairs
in a
pre-token, the pair whose concatenation has the lowest rank merges first; a pre-token that is in the
table is taken whole. Text never becomes a special token: specials are appended by id.
"""

import base64

import regex

# Kimi's pre-token pattern. `&&` is set intersection, which needs the V1 flag.
SPLIT_PATTERN = "|".join(
    [
        r"[\p{Han}]+",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*"
        r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+"
        r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    ]
)

N_RANKS = 4096
N_SPECIALS = 256
VOCAB_SIZE = N_RANKS + N_SPECIALS

# Offsets from the first id after the ranks, the same as in Kimi's table.
SPECIAL_OFFSETS = {
    "[BOS]": 0,
    "[EOS]": 1,
    "<|im_end|>": 2,
    "<|im_user|>": 3,
    "<|im_assistant|>": 4,
    "<|start_header_id|>": 6,
    "<|end_header_id|>": 7,
    "[EOT]": 9,
    "<|im_system|>": 10,
    "<|tool_calls_section_begin|>": 11,
    "<|tool_calls_section_end|>": 12,
    "<|tool_call_begin|>": 13,
    "<|tool_call_argument_begin|>": 14,
    "<|tool_call_end|>": 15,
    "<|im_middle|>": 17,
    "<|media_begin|>": 18,
    "<|media_content|>": 19,
    "<|media_end|>": 20,
    "<|media_pad|>": 21,
    "<think>": 22,
    "</think>": 23,
    "[UNK]": 254,
    "[PAD]": 255,
}
SPECIALS = {name: N_RANKS + offset for name, offset in SPECIAL_OFFSETS.items()}

# These stay visible when a decoder skips special tokens, as in Kimi's table.
SHOWN_SPECIALS = {
    "<|tool_calls_section_begin|>",
    "<|tool_calls_section_end|>",
    "<|tool_call_begin|>",
    "<|tool_call_argument_begin|>",
    "<|tool_call_end|>",
    "<think>",
    "</think>",
}


def compile_split():
    return regex.compile(SPLIT_PATTERN, regex.V1)


def load_ranks(path):
    ranks = {}
    with open(path, encoding="ascii") as file:
        for line in file:
            token, rank = line.split()
            ranks[base64.b64decode(token)] = int(rank)
    return ranks


def merge_lowest_rank(piece, ranks):
    """Ids of one pre-token (bytes). Quadratic in its length; pre-tokens are short here."""
    if piece in ranks:
        return [ranks[piece]]
    parts = [piece[i : i + 1] for i in range(len(piece))]
    while len(parts) > 1:
        best_rank, best = None, -1
        for i in range(len(parts) - 1):
            rank = ranks.get(parts[i] + parts[i + 1])
            if rank is not None and (best_rank is None or rank < best_rank):
                best_rank, best = rank, i
        if best < 0:
            break
        parts[best : best + 2] = [parts[best] + parts[best + 1]]
    return [ranks[part] for part in parts]


class Tokenizer:
    def __init__(self, model_path):
        self.ranks = load_ranks(model_path)
        self.bytes_of = {rank: token for token, rank in self.ranks.items()}
        self.special_names = {i: name for name, i in SPECIALS.items()}
        self._findall = compile_split().findall
        self._pieces = {}
        self._texts = {}

    def encode(self, text):
        """Ids of ordinary text. Pre-tokens are memoised, which is what makes data generation
        fast."""
        pieces = self._pieces
        ids = []
        for piece in self._findall(text):
            found = pieces.get(piece)
            if found is None:
                found = merge_lowest_rank(piece.encode("utf-8"), self.ranks)
                if len(pieces) < 400_000:
                    pieces[piece] = found
            ids += found
        return ids

    def encode_memo(self, text):
        """Like encode, for strings that come again and again (role names, declarations,
        records)."""
        found = self._texts.get(text)
        if found is None:
            found = self.encode(text)
            if len(self._texts) < 400_000:
                self._texts[text] = found
        return found

    def decode(self, ids):
        """Text of ids, with special tokens written out by name."""
        out, pending = [], b""
        for i in ids:
            if i < N_RANKS:
                pending += self.bytes_of[i]
                continue
            out.append(pending.decode("utf-8", errors="replace"))
            out.append(self.special_names.get(i, f"<|reserved_token_{i}|>"))
            pending = b""
        out.append(pending.decode("utf-8", errors="replace"))
        return "".join(out)
