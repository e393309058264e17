// ModelExecutor's operations on whole pages. Each is carried out before its ticket is returned.
#include "base/check.h"
#include "engine/runner.h"

namespace quire {

TicketId ModelExecutor::finish(Outcome outcome) {
  const TicketId ticket{++last_ticket_};
  // Only what somebody will collect is kept.
  if (!std::holds_alternative<std::monostate>(outcome)) {
    outcomes_.emplace(ticket.value, std::move(outcome));
  }
  return ticket;
}

template <class T>
T ModelExecutor::collect(TicketId ticket) {
  const auto found = outcomes_.find(ticket.value);
  CHECK(found != outcomes_.end() && std::holds_alternative<T>(found->second));
  T outcome = std::move(std::get<T>(found->second));
  outcomes_.erase(found);
  return outcome;
}

std::byte* ModelExecutor::page_data(PageId page) {
  CHECK(page.value >= 0 && page.value < limits_.n_pages);
  return pool_.data() + page.value * model_.kv_layout().page_bytes;
}

std::span<const std::byte> ModelExecutor::read_settled_page(PageId page) {
  backend_.copy_out_settled(page_bytes_.span(), page_data(page));
  return page_bytes_.span();
}

TicketId ModelExecutor::copy_pages(std::span<const PageId> from, std::span<const PageId> to) {
  CHECK(from.size() == to.size());
  for (size_t i = 0; i < from.size(); ++i) {
    backend_.copy_out(page_bytes_.span(), page_data(from[i]));
    backend_.copy_in(page_data(to[i]), page_bytes_.span());
  }
  return finish({});
}

TicketId ModelExecutor::fill_pages(std::span<const PageId> pages, std::byte value) {
  for (const PageId page : pages) {
    backend_.fill(page_data(page), model_.kv_layout().page_bytes, value);
  }
  return finish({});
}

TicketId ModelExecutor::seal_pages(std::span<const SealTarget> targets) {
  std::vector<PageSeal> seals(targets.size());
  sealer_->seal(targets, seals);
  return finish(std::move(seals));
}

std::vector<PageSeal> ModelExecutor::collect_seals(TicketId ticket) {
  return collect<std::vector<PageSeal>>(ticket);
}

TicketId ModelExecutor::verify_pages(std::span<const SealTarget> targets,
                                     std::span<const PageSeal> expected) {
  CHECK(targets.size() == expected.size());
  std::vector<PageSeal> found(targets.size());
  sealer_->seal(targets, found);
  std::vector<PageVerdict> verdicts(targets.size(), PageVerdict::ok);
  for (size_t i = 0; i < targets.size(); ++i) {
    if (found[i] != expected[i]) verdicts[i] = PageVerdict::mismatch;
  }
  return finish(std::move(verdicts));
}

std::vector<PageVerdict> ModelExecutor::collect_verdicts(TicketId ticket) {
  return collect<std::vector<PageVerdict>>(ticket);
}

TicketId ModelExecutor::export_pages(std::span<const PageId> pages) {
  std::vector<std::byte> bytes;
  bytes.reserve(pages.size() * page_bytes_.span().size());
  for (const PageId page : pages) {
    const std::span<const std::byte> data = read_settled_page(page);
    bytes.insert(bytes.end(), data.begin(), data.end());
  }
  return finish(std::move(bytes));
}

std::vector<std::byte> ModelExecutor::collect_bytes(TicketId ticket) {
  return collect<std::vector<std::byte>>(ticket);
}

TicketId ModelExecutor::import_pages(std::span<const PageId> pages,
                                     std::span<const std::byte> bytes) {
  CHECK(bytes.size() == pages.size() * page_bytes_.span().size());
  for (size_t i = 0; i < pages.size(); ++i) {
    backend_.copy_in(page_data(pages[i]),
                     bytes.subspan(i * page_bytes_.span().size(), page_bytes_.span().size()));
  }
  return finish({});
}

}  // namespace quire
