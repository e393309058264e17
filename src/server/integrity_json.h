// What the admin listener's /integrity shows, and what its /integrity/release takes.
#pragma once

#include <optional>
#include <string_view>

#include "base/json_fwd.h"
#include "engine/engine.h"

namespace quire {

// {"pages":{state:n},"quarantined":[{"page","held"}],"checks":{name:{"looked","found"}},
//  "coverage","retries","events":[{"number","seconds_ago","step","event","check","page","request",
//  "what"}]}; of an event, what does not apply is null.
Json to_json(const IntegrityReport& report, const EngineStats& stats);

// The share of the comparisons of page tags that were asked for and made; 1 when none was asked
// for.
double integrity_coverage(const EngineStats& stats);

// The page of {"page": NUMBER}; nothing when the body is anything else.
std::optional<PageId> read_page(std::string_view body);

}  // namespace quire
