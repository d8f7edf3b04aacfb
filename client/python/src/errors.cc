#include "client/python/src/errors.h"

namespace cistern::py {

nb::object MakeError(const Status& status) {
  return nb::module_::import_("cistern._errors")
      .attr("make_error")(static_cast<int>(status.code()), status.message().c_str());
}

void Raise(const Status& status) {
  nb::object error = MakeError(status);
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
  throw nb::python_error();
}

}  // namespace cistern::py
