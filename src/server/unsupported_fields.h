// The fields that a request may not have: internal ones, and ones whose meaning we do not offer.
//
// Unknown fields are ignored, so that clients newer than us go on working. Not these: an internal
// field on the public port is an attack (server-side addresses, cache keys), and to ignore a field
// that restricts the answer would be to give a wrong answer.
#pragma once

#include "server/field_reader.h"

namespace quire {

// Refuses with unknown_parameter or unsupported_parameter, naming the field.
void refuse_unsupported_fields(FieldReader& body);

}  // namespace quire
