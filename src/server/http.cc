#include "server/http.h"

#include <algorithm>

#include "base/check.h"
#include "base/text.h"

namespace quire {

namespace {

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

}  // namespace

bool equal_ignoring_case(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char x, char y) { return lower(x) == lower(y); });
}

std::optional<std::string_view> HttpRequest::header(std::string_view name) const {
  for (const HttpHeader& header : headers) {
    if (equal_ignoring_case(header.name, name)) return header.value;
  }
  return std::nullopt;
}

std::string_view reason_phrase(int status) {
  switch (status) {
    case 100:
      return "Continue";
    case 200:
      return "OK";
    case 204:
      return "No Content";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 411:
      return "Length Required";
    case 413:
      return "Content Too Large";
    case 414:
      return "URI Too Long";
    case 415:
      return "Unsupported Media Type";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 503:
      return "Service Unavailable";
    case 505:
      return "HTTP Version Not Supported";
  }
  return "Status";
}

std::string serialize_head(const HttpResponse& response, const ResponseFraming& framing) {
  std::string out = format("HTTP/1.1 %d ", response.status);
  out += reason_phrase(response.status);
  out += "\r\nServer: quire\r\n";
  // 204 has neither a body nor a length.
  if (response.status != 204) {
    out += "Content-Type: " + response.content_type + "\r\n";
    if (framing.content_length) out += format("Content-Length: %zu\r\n", *framing.content_length);
    if (framing.chunked) out += "Transfer-Encoding: chunked\r\n";
  }
  out += framing.keep_alive ? "Connection: keep-alive\r\n" : "Connection: close\r\n";
  for (const HttpHeader& header : response.headers) {
    // Header values are ours; a line break in one would be a second header.
    CHECK(header.value.find_first_of("\r\n") == std::string::npos);
    out += header.name + ": " + header.value + "\r\n";
  }
  out += "\r\n";
  return out;
}

}  // namespace quire
