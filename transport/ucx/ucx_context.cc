#include "transport/ucx/ucx_context.h"

#include <sched.h>
#include <ucs/debug/log_def.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/error_of.h"
#include "core/status_macros.h"
#include "transport/topology.h"
#include "transport/ucx/ucx_facts.h"
#include "transport/ucx/ucx_messages.h"

extern "C" __attribute__((weak)) void ucs_debug_disable_signals();  // In libucs, in no header of it.

namespace cistern {
namespace {

struct Setting {
  const char* name;
  const char* value;
};
// All that we depend on is set here, whatever the environment says. 1.13 takes the settings of its transports
// without the transport's name.
constexpr Setting kSettings[] = {
    {"TX_SEG_SIZE", "272k"},  // A chunk of a payload in one piece (kChunkBytes); 8k is several times slower.
    {"RX_SEG_SIZE", "544k"},
    {"ZCOPY_THRESH", "16k"},  // UCX takes loopback for a slow link and would copy once more.
    {"PROTO_ENABLE", "n"},    // 1.13 aborts with it on connections by address.
};
// Otherwise shared memory takes no endpoint that reports errors.
constexpr Setting kSharedMemory = {"ERROR_HANDLING", "y"};
// Of memory that UCX registers by itself: bodies and payloads in memory that is not ours.
constexpr Setting kVerbs = {"RCACHE_MAX_REGIONS", "4096"};
constexpr char kSysInfiniband[] = "/sys/class/infiniband";
// Shared memory is the business of `map`: UCX's needs equal users, crosses network namespaces unseen, and
// hands out writable maps. UD: 1.13 ends the process when a UD queue breaks, as it does when a link flaps,
// and connections by address need none.
constexpr char kTransportsDefault[] = "^posix,sysv,cma,ud_verbs,ud_mlx5";

bool NamesSharedMemory(absl::string_view transports) {
  for (const absl::string_view name : absl::StrSplit(transports, ',')) {
    if (name == "posix" || name == "sysv" || name == "shm" || name == "sm" || name == "mm" || name == "all")
      return true;
  }
  return false;
}

// UCX writes its warnings to standard output, where a command's one JSON object goes.
ucs_log_func_rc_t LogToStderr(const char* file, unsigned line, const char*, ucs_log_level_t level,
                              const ucs_log_component_config_t*, const char* format, va_list arguments) {
  if (level > UCS_LOG_LEVEL_WARN) return UCS_LOG_FUNC_RC_STOP;
  char text[512];
  std::vsnprintf(text, sizeof(text), format, arguments);
  // Settings of transports that this process did not load; UCX calls all of them invalid.
  if (std::strncmp(text, "invalid configuration", std::strlen("invalid configuration")) == 0)
    return UCS_LOG_FUNC_RC_STOP;
  const char* name = std::strrchr(file, '/');
  std::fprintf(stderr, "ucx: %s (%s:%u)\n", text, name == nullptr ? file : name + 1, line);
  return UCS_LOG_FUNC_RC_STOP;
}

// "nearest" becomes the NICs next to the NUMA node that this process starts on.
absl::StatusOr<std::string> DevicesOf(const std::string& wanted) {
  if (wanted.empty()) return "all";
  if (wanted != "nearest") return wanted;
  CISTERN_ASSIGN_OR_RETURN(const Topology topology, ReadTopology());
  unsigned cpu = 0, numa = 0;
  if (getcpu(&cpu, &numa) != 0) return absl::ErrnoToStatus(errno, "getcpu");
  for (const NicChoice& choice : topology.choices) {
    if (choice.of != absl::StrCat("numa ", numa)) continue;
    return absl::StrCat(absl::StrJoin(choice.nics, ":1,"), ":1");
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "--fabric-devices nearest: no RDMA NIC is near NUMA node ", numa, "; see cistern peers --topology"));
}

class Config {
 public:
  static absl::StatusOr<Config> Read() {
    ucp_config_t* raw = nullptr;
    if (const ucs_status_t status = ucp_config_read(nullptr, nullptr, &raw); status != UCS_OK)
      return UcxError(status, "reading UCX's defaults");
    return Config(raw);
  }
  Config(Config&& other) noexcept : raw_(std::exchange(other.raw_, nullptr)) {}
  Config& operator=(Config&&) = delete;
  ~Config() {
    if (raw_ != nullptr) ucp_config_release(raw_);
  }
  absl::Status Set(const char* name, const std::string& value) {
    const ucs_status_t status = ucp_config_modify(raw_, name, value.c_str());
    return status == UCS_OK ? absl::OkStatus()
                            : UcxError(status, absl::StrCat("UCX setting ", name, "=", value));
  }
  const ucp_config_t* get() const { return raw_; }

 private:
  explicit Config(ucp_config_t* raw) : raw_(raw) {}
  ucp_config_t* raw_;
};

std::string Printed(ucp_context_h context) {
  char* text = nullptr;
  size_t bytes = 0;
  FILE* stream = open_memstream(&text, &bytes);
  if (stream == nullptr) return {};
  ucp_context_print_info(context, stream);
  std::fclose(stream);
  std::string out(text, bytes);
  std::free(text);
  return out;
}

}  // namespace

absl::Status UcxError(ucs_status_t status, absl::string_view what) {
  auto code = absl::StatusCode::kUnavailable;
  switch (status) {
    case UCS_ERR_NO_MEMORY:
    case UCS_ERR_NO_RESOURCE:
    case UCS_ERR_EXCEEDS_LIMIT:
      code = absl::StatusCode::kResourceExhausted;
      break;
    case UCS_ERR_INVALID_PARAM:
    case UCS_ERR_INVALID_ADDR:
      code = absl::StatusCode::kInvalidArgument;
      break;
    case UCS_ERR_UNSUPPORTED:
    case UCS_ERR_NO_DEVICE:
    case UCS_ERR_NO_ELEM:
      code = absl::StatusCode::kFailedPrecondition;
      break;
    default:
      break;
  }
  return ErrorOf(code, what, ": ", ucs_status_string(status));
}

absl::StatusOr<std::shared_ptr<UcxContext>> UcxContext::Open(const FabricOptions& options) {
  static std::once_flag once;
  std::call_once(once, [] {
    ucs_log_push_handler(LogToStderr);
    // UCX catches SIGSEGV, SIGHUP and others as soon as it is loaded: they are the process's business.
    if (ucs_debug_disable_signals != nullptr) ucs_debug_disable_signals();
  });
  std::shared_ptr<UcxContext> context(new UcxContext(options));
  CISTERN_RETURN_IF_ERROR(context->Init());
  return context;
}

absl::Status UcxContext::Init() {
  unsigned major = 0, minor = 0, release = 0;
  ucp_get_version(&major, &minor, &release);
  facts_.library = absl::StrCat("UCX ", major, ".", minor, ".", release);
  CISTERN_ASSIGN_OR_RETURN(Config config, Config::Read());
  for (const Setting& setting : kSettings) CISTERN_RETURN_IF_ERROR(config.Set(setting.name, setting.value));
  std::error_code error;
  if (NamesSharedMemory(options_.transports))
    CISTERN_RETURN_IF_ERROR(config.Set(kSharedMemory.name, kSharedMemory.value));
  if (std::filesystem::is_directory(kSysInfiniband, error))
    CISTERN_RETURN_IF_ERROR(config.Set(kVerbs.name, kVerbs.value));
  CISTERN_RETURN_IF_ERROR(
      config.Set("TLS", options_.transports.empty() ? kTransportsDefault : options_.transports));
  CISTERN_ASSIGN_OR_RETURN(const std::string devices, DevicesOf(options_.devices));
  CISTERN_RETURN_IF_ERROR(config.Set("NET_DEVICES", devices));
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED | UCP_PARAM_FIELD_NAME;
  params.features = UCP_FEATURE_AM | UCP_FEATURE_RMA | UCP_FEATURE_WAKEUP;
  params.mt_workers_shared = 1;
  params.name = "cistern";
  if (const ucs_status_t status = ucp_init(&params, config.get(), &context_); status != UCS_OK) {
    context_ = nullptr;
    const bool named = !options_.devices.empty() || !options_.transports.empty();
    return UcxError(status, named ? absl::StrCat("opening the fabric with transports \"", options_.transports,
                                                 "\" and devices \"", options_.devices, "\"")
                                  : std::string("opening the fabric"));
  }
  facts_.links = ParseContextLinks(Printed(context_));
  for (const std::string& link : facts_.links) facts_.rdma |= IsOneSidedLink(link);
  ucp_context_attr_t attributes{};
  attributes.field_mask = UCP_ATTR_FIELD_MEMORY_TYPES;
  if (ucp_context_query(context_, &attributes) == UCS_OK) {
    for (int type = 0; type < UCS_MEMORY_TYPE_LAST; ++type) {
      if ((attributes.memory_types >> type & 1) != 0)
        facts_.memory_types.emplace_back(ucs_memory_type_names[type]);
    }
  }
  DecideGpuPath((attributes.memory_types >> UCS_MEMORY_TYPE_CUDA & 1) != 0,
                std::filesystem::exists("/dev/nvidiactl", error), facts_);
  if (options_.require_rdma) return CheckRdma(facts_, kSysInfiniband, "/dev/infiniband");
  return absl::OkStatus();
}

UcxContext::~UcxContext() {
  if (context_ != nullptr) ucp_cleanup(context_);
}

absl::StatusOr<void*> UcxContext::Register(std::byte* data, size_t bytes) {
  ucp_mem_map_params_t params{};
  params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
  params.address = data;
  params.length = bytes;
  ucp_mem_h handle = nullptr;
  const ucs_status_t status = ucp_mem_map(context_, &params, &handle);
  if (status != UCS_OK) return UcxError(status, absl::StrCat("registering ", bytes, " bytes"));
  return handle;
}

void UcxContext::Unregister(void* handle) { ucp_mem_unmap(context_, static_cast<ucp_mem_h>(handle)); }

absl::StatusOr<std::vector<std::byte>> UcxContext::PackKey(void* handle) const {
  void* packed = nullptr;
  size_t bytes = 0;
  const ucs_status_t status = ucp_rkey_pack(context_, static_cast<ucp_mem_h>(handle), &packed, &bytes);
  if (status != UCS_OK) return UcxError(status, "packing a memory key");
  const auto* begin = static_cast<const std::byte*>(packed);
  std::vector<std::byte> key(begin, begin + bytes);
  ucp_rkey_buffer_release(packed);
  if (bytes > kRkeyBytesMax) {
    return absl::ResourceExhaustedError(absl::StrCat("a memory key of ", bytes, " bytes, at most ",
                                                     kRkeyBytesMax, "; name fewer --fabric-devices"));
  }
  return key;
}

}  // namespace cistern
