#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/types/span.h"
#include "core/formats/compression.h"

namespace cistern {

// When does compressing stored parts pay? Moving a part of N bytes at B bytes a second takes N / B;
// compressed it takes N / E to encode (or N / D to decode) and N * s / B to move, s the share of bytes that
// is left. Both are equal at B = E * (1 - s): on slower paths compression wins time, on faster ones it costs
// some. Encoding and moving are taken to follow each other; where they overlap, the break-even is higher.

// As measured on this machine: 10^9 bytes of bf16 a second.
struct FormFigures {
  StoredForm form = StoredForm::kE4m3;
  double encode_gbps = 0;
  double decode_gbps = 0;
  uint64_t raw_bytes = 0;
  uint64_t stored_bytes = 0;
};

struct BreakEven {
  double store_gbps = 0;  // Stores over slower paths get faster by compression.
  double load_gbps = 0;   // The same for loads.
};
// Zeros when the form saves nothing or has no figures.
BreakEven BreakEvenOf(const FormFigures& figures);

// What a namespace's parts travel over, and how often.
struct StoragePath {
  double write_gbps = 0;
  double read_gbps = 0;
  double reads_per_write = 1;
};
struct StorageChoice {
  std::optional<StoredForm> form;  // None: as bf16.
  double seconds_per_gb = 0;       // Of bf16, one write and its reads.
  double seconds_per_gb_raw = 0;   // The same without compression.
  std::string why;                 // One line with the figures that decided, for the log and the status.
};
// The quickest of `allowed` forms and plain bf16; an equal is no reason to lose precision. An empty `allowed`
// is how a namespace says that it wants its bytes as they are.
StorageChoice ChooseStoredForm(absl::Span<const FormFigures> allowed, const StoragePath& path);

}  // namespace cistern
