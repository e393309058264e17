// Bytes that are, or are not, an HTTP request: each at every split, so that no rule depends on how
// the network cut them.
#include "server/http_request_reader.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/text.h"

namespace quire {
namespace {

using State = HttpRequestReader::State;

struct Outcome {
  State state = State::head;
  int status = 0;  // of the refusal
  std::string code;
  HttpRequest request;
  std::string left_over;
};

// Feeds `bytes` in pieces of `piece` bytes, as a connection does.
Outcome read(const std::string& bytes, size_t piece, const HttpLimits& limits) {
  HttpRequestReader reader(limits);
  std::string received;
  Outcome out;
  for (size_t at = 0; at < bytes.size(); at += piece) {
    received += bytes.substr(at, piece);
    if (reader.state() == State::complete || reader.state() == State::refused) continue;
    received.erase(0, reader.feed(received));
  }
  out.state = reader.state();
  out.left_over = received;
  if (out.state == State::refused) {
    out.status = reader.refusal().status;
    if (reader.refusal().code != nullptr) out.code = reader.refusal().code;
  }
  if (out.state == State::complete) out.request = reader.take();
  return out;
}

std::vector<size_t> splits(size_t size) {
  if (size > 4096) return {size, 1000};
  return {size, 1, 2, 3, 7, 64};
}

const std::string kHead = "POST /v1/completions HTTP/1.1\r\nHost: a\r\n";

TEST(HttpRequestReader, ReadsARequestWithALength) {
  const std::string bytes = kHead + "X-Request-Id: r1\r\nContent-Length: 5\r\n\r\nhelloGET";
  for (const size_t piece : splits(bytes.size())) {
    const Outcome out = read(bytes, piece, {});
    ASSERT_EQ(out.state, State::complete) << piece;
    EXPECT_EQ(out.request.method, HttpMethod::post);
    EXPECT_EQ(out.request.path, "/v1/completions");
    EXPECT_EQ(out.request.body, "hello");
    EXPECT_EQ(out.request.header("x-request-id"), "r1");
    EXPECT_EQ(out.left_over, "GET");
    EXPECT_TRUE(out.request.keep_alive);
  }
}

TEST(HttpRequestReader, ReadsAChunkedBody) {
  const std::string bytes = kHead +
                            "Transfer-Encoding: chunked\r\n\r\n"
                            "4\r\nhell\r\n1;name=value\r\no\r\n0\r\nTrailer: x\r\n\r\nGET";
  for (const size_t piece : splits(bytes.size())) {
    const Outcome out = read(bytes, piece, {});
    ASSERT_EQ(out.state, State::complete) << piece;
    EXPECT_EQ(out.request.body, "hello") << piece;
    EXPECT_EQ(out.left_over, "GET") << piece;
  }
}

TEST(HttpRequestReader, ReadsAChunkedBodyOfNoChunks) {
  const std::string bytes = kHead + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET";
  for (const size_t piece : splits(bytes.size())) {
    const Outcome out = read(bytes, piece, {});
    ASSERT_EQ(out.state, State::complete) << piece;
    EXPECT_EQ(out.request.body, "");
    EXPECT_EQ(out.left_over, "GET") << piece;
  }
}

TEST(HttpRequestReader, KeepsThePathAsSentAndCutsTheQuery) {
  const Outcome out = read("GET /a%2e//b?x=1?y HTTP/1.0\r\n\r\n", 1, {});
  ASSERT_EQ(out.state, State::complete);
  EXPECT_EQ(out.request.path, "/a%2e//b");
  EXPECT_EQ(out.request.query, "x=1?y");
  EXPECT_TRUE(out.request.http_1_0);
  EXPECT_FALSE(out.request.keep_alive);
}

TEST(HttpRequestReader, ForgivesOneEmptyLineBeforeTheRequest) {
  EXPECT_EQ(read("\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", 1, {}).state, State::complete);
  EXPECT_EQ(read("\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", 1, {}).status, 400);
}

TEST(HttpRequestReader, SaysThatTheClientWaitsToContinue) {
  const HttpLimits limits;
  HttpRequestReader reader(limits);
  const std::string head = kHead + "Expect: 100-continue\r\nContent-Length: 2\r\n\r\n";
  EXPECT_EQ(reader.feed(head), head.size());
  EXPECT_TRUE(reader.expects_continue());
  EXPECT_EQ(reader.feed("ok"), 2U);
  EXPECT_EQ(reader.state(), State::complete);
}

struct BadCase {
  const char* name;
  std::string bytes;
  int status;
  const char* code;
};

std::vector<BadCase> bad_cases() {
  const std::string chunked = kHead + "Transfer-Encoding: chunked\r\n\r\n";
  const std::string get = "GET / HTTP/1.1\r\nHost: a\r\n";
  std::string many_headers = get;
  for (int i = 0; i < 120; ++i) many_headers += format("h%d: v\r\n", i);
  std::string large_headers = get;
  for (int i = 0; i < 6; ++i) {
    large_headers += format("h%d: ", i) + std::string(15 << 10, 'v') + "\r\n";
  }
  std::string tiny_chunks = chunked;
  for (int i = 0; i < 20'000; ++i) tiny_chunks += "1\r\na\r\n";
  std::string trailers = chunked + "0\r\n";
  for (int i = 0; i < 500; ++i) trailers += format("t%d: v\r\n", i);
  return {
      {"garbage", "\x16\x03\x01\x02\x01\r\n\r\n", 400, ""},
      {"no version", "GET /\r\n\r\n", 400, ""},
      {"HTTP/2 preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505, ""},
      {"long request line", "GET /" + std::string(9000, 'a') + " HTTP/1.1\r\n\r\n", 414,
       "uri_too_long"},
      {"endless request line", "GET /" + std::string(9000, 'a'), 414, "uri_too_long"},
      {"giant header", get + "x: " + std::string(17 << 10, 'b'), 431, "headers_too_large"},
      {"many headers", many_headers + "\r\n", 431, "headers_too_large"},
      {"large headers", large_headers + "\r\n", 431, "headers_too_large"},
      {"length and chunks", kHead + "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n",
       400, ""},
      {"chunks and length", kHead + "Transfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n0\r\n",
       400, ""},
      {"two lengths", kHead + "Content-Length: 1\r\nContent-Length: 1\r\n\r\na", 400, ""},
      {"a list of lengths", kHead + "Content-Length: 1, 1\r\n\r\na", 400, ""},
      {"negative length", kHead + "Content-Length: -1\r\n\r\n", 400, ""},
      {"hexadecimal length", kHead + "Content-Length: 0x5\r\n\r\n", 400, ""},
      {"huge length", kHead + "Content-Length: 18446744073709551615\r\n\r\n", 413,
       "request_too_large"},
      {"length above the limit", kHead + "Content-Length: 16777217\r\n\r\n", 413,
       "request_too_large"},
      {"no length", kHead + "\r\n", 411, "length_required"},
      {"unknown coding", kHead + "Transfer-Encoding: gzip, chunked\r\n\r\n", 400, ""},
      {"disguised coding", kHead + "Transfer-Encoding: xchunked\r\n\r\n", 400, ""},
      {"compressed body", kHead + "Content-Encoding: gzip\r\nContent-Length: 1\r\n\r\na", 415,
       "unsupported_media_type"},
      {"folded header", get + "a: b\r\n c: d\r\n\r\n", 400, ""},
      {"folded first header", "GET / HTTP/1.1\r\n Host: a\r\n\r\n", 400, ""},
      {"blank before the colon", get + "a : b\r\n\r\n", 400, ""},
      {"no colon", get + "abc\r\n\r\n", 400, ""},
      {"empty name", get + ": b\r\n\r\n", 400, ""},
      {"bare LF", "GET / HTTP/1.1\nHost: a\n\n", 400, ""},
      {"bare LF in a header", get + "a: b\nc: d\r\n\r\n", 400, ""},
      {"bare CR in a header", get + "a: b\rc: d\r\n\r\n", 400, ""},
      {"NUL in a header", get + std::string("a: b\0c\r\n\r\n", 10), 400, ""},
      {"control character in a header", get + "a: b\x01\r\n\r\n", 400, ""},
      {"two hosts", get + "Host: b\r\n\r\n", 400, ""},
      {"no host", "GET / HTTP/1.1\r\n\r\n", 400, ""},
      {"chunks in HTTP/1.0", "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400,
       ""},
      {"negative chunk", chunked + "-2\r\nabc\r\n", 400, ""},
      {"chunk with a prefix", chunked + "0x2\r\nab\r\n\r\n", 400, ""},
      {"empty chunk size", chunked + "\r\nab\r\n", 400, ""},
      {"nine digits of chunk size", chunked + "100000000\r\n", 400, ""},
      {"nine digits of a small chunk", chunked + "000000001\r\na\r\n0\r\n\r\n", 400, ""},
      {"bare LF after a chunk's size", chunked + "1\na\r\n0\r\n\r\n", 400, ""},
      {"bare LF after a chunk", chunked + "1\r\na\n0\r\n\r\n", 400, ""},
      {"blank before a chunk's size", chunked + " 1\r\na\r\n0\r\n\r\n", 400, ""},
      {"blank after a chunk's size", chunked + "1 \r\na\r\n0\r\n\r\n", 400, ""},
      {"trailer without a colon", chunked + "0\r\nabc\r\n\r\n", 400, ""},
      {"control character in an extension", chunked + "1;\x01\r\na\r\n0\r\n\r\n", 400, ""},
      {"sixteen digits of chunk size", chunked + "fffffffffffffffe\r\n", 400, ""},
      {"overflowing chunk size", chunked + "10000000000000000005\r\n", 400, ""},
      {"chunk above the limit", chunked + "1000001\r\n", 413, "request_too_large"},
      {"chunk longer than it says", chunked + "2\r\nabc\r\n0\r\n\r\n", 400, ""},
      {"endless chunk extension", chunked + "1;" + std::string(4000, 'x'), 400, ""},
      {"many tiny chunks", tiny_chunks, 413, "request_too_large"},
      {"endless trailers", trailers, 400, ""},
  };
}

TEST(HttpRequestReader, RefusesEachBadRequestAtEverySplit) {
  for (const BadCase& bad : bad_cases()) {
    for (const size_t piece : splits(bad.bytes.size())) {
      const Outcome out = read(bad.bytes, piece, {});
      EXPECT_EQ(out.state, State::refused) << bad.name << " in pieces of " << piece;
      EXPECT_EQ(out.status, bad.status) << bad.name << " in pieces of " << piece;
      EXPECT_EQ(out.code, bad.code) << bad.name << " in pieces of " << piece;
    }
  }
}

TEST(HttpRequestReader, TakesEachSizeUpToItsLimitAndNotOneMore) {
  HttpLimits limits;
  limits.body_bytes_max = 10;
  limits.request_line_bytes_max = 20;
  limits.header_bytes_max = 12;
  limits.headers_max = 3;
  limits.chunks_max = 4;
  const auto status = [&](const std::string& bytes) {
    const Outcome out = read(bytes, bytes.size(), limits);
    return out.state == State::complete ? 200 : out.status;
  };
  const auto body = [](size_t size) {
    return "POST / HTTP/1.1\r\nHost: a\r\n" + format("c: d\r\nContent-Length: %zu\r\n\r\n", size) +
           std::string(size, 'b');
  };
  limits.header_bytes_max = 18;
  EXPECT_EQ(status(body(10)), 200);
  EXPECT_EQ(status(body(11)), 413);
  limits.header_bytes_max = 12;
  const auto line = [](size_t size) {
    return "GET /" + std::string(size - 14, 'a') + " HTTP/1.1\r\nHost: a\r\n\r\n";
  };
  EXPECT_EQ(status(line(20)), 200);
  EXPECT_EQ(status(line(21)), 414);
  const auto header = [](size_t size) {
    return "GET / HTTP/1.1\r\nHost: a\r\nb: " + std::string(size - 3, 'c') + "\r\n\r\n";
  };
  EXPECT_EQ(status(header(12)), 200);
  EXPECT_EQ(status(header(13)), 431);
  EXPECT_EQ(status("GET / HTTP/1.1\r\nHost: a\r\nb: c\r\nd: e\r\n\r\n"), 200);
  EXPECT_EQ(status("GET / HTTP/1.1\r\nHost: a\r\nb: c\r\nd: e\r\nf: g\r\n\r\n"), 431);
  limits.header_bytes_max = 64;
  const auto chunks = [](int count) {
    std::string out = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    for (int i = 0; i < count; ++i) out += "1\r\na\r\n";
    return out + "0\r\n\r\n";
  };
  EXPECT_EQ(status(chunks(4)), 200);
  EXPECT_EQ(status(chunks(5)), 413);
}

}  // namespace
}  // namespace quire
