#include "text/tokenizer.h"

#include "base/check.h"
#include "base/json.h"
#include "base/mapped_file.h"
#include "base/text.h"
#include "text/bpe.h"
#include "text/pre_tokenize.h"

namespace quire {

namespace {

constexpr size_t kRanksFileBytesMax = size_t{64} << 20;
constexpr size_t kConfigFileBytesMax = size_t{4} << 20;
constexpr size_t kSpecialBytesMax = 256;

Error in_file(const std::string& path, const Error& error) {
  return {error.code, path + ": " + error.message};
}

// One entry of `added_tokens_decoder`.
struct AddedToken {
  Token id;
  std::string text;
  bool is_hidden;
};

Result<AddedToken> read_added_token(const std::string& key, const Json& value) {
  const auto id = parse_int(key);
  if (!id || *id < 0 || *id > INT32_MAX) {
    return invalid_argument("added_tokens_decoder: \"" + excerpt(key) + "\" is not a token id");
  }
  const std::string where = format("added_tokens_decoder[%lld]", static_cast<long long>(*id));
  if (!value.is_object() || !value.contains("content") || !value["content"].is_string()) {
    return invalid_argument(where + ": expected an object with a string \"content\"");
  }
  std::string text = value["content"].get<std::string>();
  if (text.empty() || text.size() > kSpecialBytesMax) {
    return invalid_argument(
        format("%s.content: expected 1 to %zu bytes", where.c_str(), kSpecialBytesMax));
  }
  const auto special = value.find("special");
  if (special != value.end() && !special->is_boolean()) {
    return invalid_argument(where + ".special: expected true or false");
  }
  const bool is_hidden = special == value.end() || special->get<bool>();
  return AddedToken{static_cast<Token>(*id), std::move(text), is_hidden};
}

}  // namespace

Result<Tokenizer> Tokenizer::load(const std::string& model_dir) {
  const std::string ranks_path = model_dir + "/tiktoken.model";
  const std::string config_path = model_dir + "/tokenizer_config.json";
  const std::string ranks = TRY(read_text_file(ranks_path, kRanksFileBytesMax));
  const std::string config = TRY(read_text_file(config_path, kConfigFileBytesMax));
  auto vocabulary = Vocabulary::parse(ranks);
  if (!vocabulary.ok()) return in_file(ranks_path, vocabulary.error());
  Tokenizer out(std::move(vocabulary).value());
  const Status specials = out.read_specials(config);
  if (!specials.ok()) return in_file(config_path, specials.error());
  return out;
}

Result<Tokenizer> Tokenizer::parse(std::string_view ranks, std::string_view config_json) {
  Tokenizer out(TRY(Vocabulary::parse(ranks)));
  TRY_OK(out.read_specials(config_json));
  return out;
}

Status Tokenizer::read_specials(std::string_view config_json) {
  const Json config = TRY(parse_json(config_json));
  if (!config.is_object()) return invalid_argument("expected a JSON object");
  const int32_t first = vocabulary_.size();
  specials_.resize(kSpecials);
  const auto added = config.find("added_tokens_decoder");
  if (added != config.end()) {
    if (!added->is_object()) return invalid_argument("added_tokens_decoder: expected an object");
    for (const auto& [key, value] : added->items()) {
      AddedToken token = TRY(read_added_token(key, value));
      if (token.id < first || token.id - first >= kSpecials) {
        return invalid_argument(format("added_tokens_decoder[%d]: expected an id from %d to %d",
                                       token.id, first, first + kSpecials - 1));
      }
      Special& slot = specials_[static_cast<size_t>(token.id - first)];
      if (!slot.text.empty()) {
        return invalid_argument(format("added_tokens_decoder[%d]: given twice", token.id));
      }
      slot = {std::move(token.text), token.is_hidden};
    }
  }
  for (Token id = first; id < first + kSpecials; ++id) {
    Special& slot = specials_[static_cast<size_t>(id - first)];
    if (slot.text.empty()) slot = {format("<|reserved_token_%d|>", id), true};
    if (!special_ids_.emplace(slot.text, id).second) {
      return invalid_argument(
          format("special token %d: \"%s\" names another one too", id, excerpt(slot.text).c_str()));
    }
  }
  return {};
}

std::vector<Token> Tokenizer::encode(std::string_view text) const {
  std::vector<Token> out;
  out.reserve(text.size() / 4 + 8);
  Bpe bpe(vocabulary_);
  for (const std::string_view slice : slice_text(text)) {
    PieceReader reader(slice);
    while (!reader.done()) bpe.append(reader.next(), &out);
  }
  return out;
}

std::optional<Token> Tokenizer::special(std::string_view text) const {
  const auto found = special_ids_.find(std::string(text));
  if (found == special_ids_.end()) return std::nullopt;
  return found->second;
}

std::string_view Tokenizer::token_bytes(Token token) const {
  CHECK(token >= 0 && token < vocab_size());
  if (!is_special(token)) return vocabulary_.bytes(token);
  return specials_[static_cast<size_t>(token - vocabulary_.size())].text;
}

std::string Tokenizer::bytes(std::span<const Token> tokens) const {
  std::string out;
  for (const Token token : tokens) out += token_bytes(token);
  return out;
}

bool Tokenizer::is_hidden(Token token) const {
  CHECK(token >= 0 && token < vocab_size());
  return is_special(token) && specials_[static_cast<size_t>(token - vocabulary_.size())].is_hidden;
}

}  // namespace quire
