// The tokenizer over HTTP: /tokenize, /detokenize and /tokenizer_info, as vLLM has them, so that an
// evaluation counts tokens as the server does without a tokenizer of its own.
//
// Pure functions of a body; they run on the server's thread, and so refuse long texts.
#pragma once

#include <cstddef>
#include <string_view>

#include "server/http.h"
#include "server/served_model.h"

namespace quire {

// About ten milliseconds of tokenizing.
inline constexpr size_t kTokenizeBytesMax = size_t{64} << 10;

// {"prompt"} -> {"tokens", "count", "max_model_len"}. Special tokens are not recognised in text,
// but for one: a text that is a special token's name, and nothing else, is that token.
HttpResponse tokenize(const ServedModel& model, std::string_view body);
// {"tokens"} -> {"prompt"}; special tokens are written by name.
HttpResponse detokenize(const ServedModel& model, std::string_view body);
// {"tokenizer_class", "bos_token", "eos_token"}: the token that ends a turn ends a text, too.
HttpResponse tokenizer_info(const ServedModel& model);

}  // namespace quire
