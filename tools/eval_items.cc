#include "tools/eval_items.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/json.h"
#include "base/mapped_file.h"
#include "base/text.h"

namespace quire {

namespace {

constexpr size_t kFileBytesMax = size_t{1} << 30;

// The member `name` of `value`, or an error that says what is missing.
Result<const Json*> member(const Json& value, const char* name) {
  if (!value.is_object()) return invalid_argument("expected an object");
  const auto found = value.find(name);
  if (found == value.end()) return invalid_argument(format("expected \"%s\"", name));
  return &*found;
}

Result<std::string> read_string(const Json& value, const char* name) {
  const Json* text = TRY(member(value, name));
  if (!text->is_string()) return invalid_argument(format("\"%s\": expected a string", name));
  return text->get<std::string>();
}

Result<int32_t> to_int32(const Json& value, const char* name) {
  const bool fits = value.is_number_unsigned() &&
                    value.get<uint64_t>() <= uint64_t{std::numeric_limits<int32_t>::max()};
  if (!fits) return invalid_argument(format("\"%s\": expected integers from 0", name));
  return value.get<int32_t>();
}

Result<std::vector<Token>> read_ids(const Json& value, const char* name) {
  const Json* ids = TRY(member(value, name));
  if (!ids->is_array()) return invalid_argument(format("\"%s\": expected a list", name));
  std::vector<Token> out;
  out.reserve(ids->size());
  for (const Json& id : *ids) out.push_back(TRY(to_int32(id, name)));
  return out;
}

Result<EvalItem> parse_item(std::string_view line) {
  const Json value = TRY(parse_json(line));
  EvalItem item{.id = TRY(read_string(value, "id")), .task = TRY(read_string(value, "task"))};
  const Json* turns = TRY(member(value, "turns"));
  if (!turns->is_array() || turns->empty()) {
    return invalid_argument("\"turns\": expected a list with at least one turn");
  }
  for (const Json& turn : *turns) {
    EvalTurn read{.prompt = TRY(read_ids(turn, "prompt_ids")),
                  .expected = TRY(read_ids(turn, "expected_ids"))};
    const Json* n = TRY(member(turn, "max_new_tokens"));
    read.max_new_tokens = TRY(to_int32(*n, "max_new_tokens"));
    item.turns.push_back(std::move(read));
  }
  return item;
}

}  // namespace

Result<std::vector<EvalItem>> read_eval_items(const std::string& path, size_t limit) {
  const std::string text = TRY(read_text_file(path, kFileBytesMax));
  std::vector<EvalItem> items;
  size_t begin = 0;
  for (int64_t number = 1; begin < text.size() && items.size() < limit; ++number) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = std::string_view(text).substr(begin, end - begin);
    begin = end + 1;
    if (line.empty()) continue;
    Result<EvalItem> item = parse_item(line);
    if (!item.ok()) {
      return invalid_argument(format("%s: line %lld: %s", path.c_str(),
                                     static_cast<long long>(number), item.error().message.c_str()));
    }
    items.push_back(std::move(item).value());
  }
  return items;
}

bool is_right(const EvalTurn& turn, std::span<const Token> generated, const EvalTokens& tokens) {
  if (generated.empty() || generated.back() != tokens.turn_end) return false;
  const std::span<const Token> said = generated.first(generated.size() - 1);
  const auto from_last = std::find(said.rbegin(), said.rend(), tokens.thoughts_end);
  return std::equal(from_last.base(), said.end(), turn.expected.begin(), turn.expected.end());
}

}  // namespace quire
