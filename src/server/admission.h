// Admission: a request's body into an AdmittedRequest, or the error that its client gets.
//
// Everything is checked here, before the engine hears of the request: types, ranges, sizes, token
// ids, the context. Pure, and thread-safe: it renders and tokenizes, which may take long for a
// large prompt, and so runs on threads of its own (server/admission_desk.h).
#pragma once

#include <cstdint>
#include <string_view>

#include "server/admitted_request.h"
#include "server/served_model.h"

namespace quire {

// What admission knows of a request besides its body.
struct Caller {
  TenantSalt tenant{};
  uint64_t fresh_seed = 0;  // for a request that names no seed
};

// `model` outlives the admitted request.
Admission admit(const ServedModel& model, Endpoint endpoint, std::string_view body,
                const Caller& caller);

}  // namespace quire
