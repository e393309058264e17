#include "base/json.h"

#include <algorithm>
#include <array>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/text.h"

namespace quire {

namespace {

// Builds the value from nlohmann's event stream, so that every limit is checked before the value
// it would have grown exists. Its own stack; the parser itself does not recurse.
class BoundedBuilder final : public nlohmann::json_sax<Json> {
 public:
  explicit BoundedBuilder(const JsonLimits& limits) : limits_(limits) {}

  bool null() override { return add(Json(nullptr)) != nullptr; }
  bool boolean(bool value) override { return add(Json(value)) != nullptr; }
  bool number_integer(number_integer_t value) override { return add(Json(value)) != nullptr; }
  bool number_unsigned(number_unsigned_t value) override { return add(Json(value)) != nullptr; }
  bool number_float(number_float_t value, const string_t&) override {
    return add(Json(value)) != nullptr;
  }
  bool string(string_t& value) override {
    if (value.size() > limits_.string_bytes_max) return refuse("a string is too long");
    return add(Json(std::move(value))) != nullptr;
  }
  bool binary(binary_t&) override { return refuse("binary values are not JSON"); }

  bool start_object(size_t) override { return open(Json::object()); }
  bool end_object() override { return close(); }
  bool start_array(size_t) override { return open(Json::array()); }
  bool end_array() override { return close(); }

  bool key(string_t& value) override {
    if (value.size() > limits_.key_bytes_max) return refuse("a key is too long");
    if (!keys_.back().insert(value).second) {
      return refuse("the key \"" + excerpt(value) + "\" appears twice in one object");
    }
    key_ = std::move(value);
    return true;
  }

  bool parse_error(size_t position, const std::string&, const Json::exception&) override {
    if (reason_.empty()) reason_ = format("not valid JSON at byte %zu", position);
    return false;
  }

  const std::string& reason() const { return reason_; }
  Json take() { return std::move(root_); }

 private:
  bool refuse(std::string reason) {
    reason_ = std::move(reason);
    return false;
  }

  // Places a value where the stream is; null when a limit refuses it.
  Json* add(Json value) {
    if (++nodes_ > limits_.nodes_max) {
      refuse("too many values");
      return nullptr;
    }
    if (stack_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    Json& parent = *stack_.back();
    if (parent.is_array()) {
      parent.push_back(std::move(value));
      return &parent.back();
    }
    // ordered_json is a vector: a duplicate was refused in key(), so this appends.
    parent.get_ref<Json::object_t&>().emplace_back(std::move(key_), std::move(value));
    return &parent.get_ref<Json::object_t&>().back().second;
  }

  bool open(Json value) {
    if (static_cast<int>(stack_.size()) >= limits_.depth_max) return refuse("nested too deeply");
    Json* placed = add(std::move(value));
    if (placed == nullptr) return false;
    stack_.push_back(placed);
    keys_.emplace_back();
    return true;
  }

  bool close() {
    stack_.pop_back();
    keys_.pop_back();
    return true;
  }

  const JsonLimits& limits_;
  Json root_;
  std::vector<Json*> stack_;  // open containers; a parent does not grow while a child is open
  std::vector<std::unordered_set<std::string>> keys_;
  std::string key_;
  std::string reason_;
  size_t nodes_ = 0;
};

}  // namespace

Result<Json> parse_json(std::string_view text, const JsonLimits& limits) {
  if (text.size() > limits.bytes_max) {
    return invalid_argument(
        format("JSON of %zu bytes, expected at most %zu", text.size(), limits.bytes_max));
  }
  if (const auto bad = first_invalid_utf8(text)) {
    return invalid_argument(format("JSON holds invalid UTF-8 at byte %zu", *bad));
  }
  // A raw NUL is valid nowhere, and the parser would take it for the end of the text.
  if (const size_t nul = text.find('\0'); nul != std::string_view::npos) {
    return invalid_argument(format("JSON holds a NUL at byte %zu", nul));
  }
  if (text.starts_with("\xef\xbb\xbf")) return invalid_argument("JSON begins with a BOM at byte 0");
  BoundedBuilder builder(limits);
  if (!Json::sax_parse(text, &builder)) {
    return invalid_argument("JSON refused: " + builder.reason());
  }
  return builder.take();
}

std::string dump_json(const Json& value) {
  const std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  // Some readers end a line at these, too: NEL, LINE SEPARATOR, PARAGRAPH SEPARATOR.
  constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kLineEnds = {
      {{"\xc2\x85", "\\u0085"}, {"\xe2\x80\xa8", "\\u2028"}, {"\xe2\x80\xa9", "\\u2029"}}};
  std::string out;
  out.reserve(text.size());
  std::string_view rest = text;
  while (!rest.empty()) {
    const size_t plain = std::min(rest.find_first_of("\xc2\xe2"), rest.size());
    out += rest.substr(0, plain);
    rest.remove_prefix(plain);
    const auto end = std::ranges::find_if(
        kLineEnds, [rest](const auto& candidate) { return rest.starts_with(candidate.first); });
    if (end != kLineEnds.end()) {
      out += end->second;
      rest.remove_prefix(end->first.size());
    } else if (!rest.empty()) {
      out += rest.front();
      rest.remove_prefix(1);
    }
  }
  return out;
}

}  // namespace quire
