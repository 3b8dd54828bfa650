//! Errors as exceptions with code, message and hint: `dcd.Error` and those below it.

use dcd_study::StudyError;
use pyo3::prelude::*;

use crate::settings::in_names;

/// A wrong setting.
pub const SETTING: &str = "setting";
/// Something that is not as this package needs it.
pub const BUG: &str = "bug";

/// An exception. Flags of the command line are told by the names of their keywords.
pub fn error(py: Python<'_>, code: &str, message: &str, hint: Option<&str>) -> PyErr {
    let made = py.import("dcd._errors").and_then(|module| {
        module.call_method1("make", (code, in_names(message), hint.map(in_names)))
    });
    made.map_or_else(|error| error, PyErr::from_value)
}

/// The same of a study.
pub fn of_study(py: Python<'_>, problem: &StudyError) -> PyErr {
    error(py, problem.code(), &problem.to_string(), problem.hint().as_deref())
}
