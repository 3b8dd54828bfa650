//! `dcd._dcd`: what the package `dcd` is made of. The studies are those of `dcd-study`, as on the
//! command line; here they are called, watched and ended from Python.
//!
//! ```text
//! settings.rs  keywords of Python -> the settings of the command line
//! load.rs      where requests come from: files, made-up loads, tables
//! columns.rs   requests as buffers, and back
//! watch.rs     a study on a thread of its own: signals, progress, panics
//! errors.rs    errors as exceptions
//! studies.rs   simulate, sweep, what rows it has, advise, summary, stack distances
//! disk.rs      a disk model
//! ```

mod columns;
mod disk;
mod errors;
mod load;
mod settings;
mod studies;
mod watch;

use pyo3::prelude::*;

/// The native part of `dcd`; use that.
#[pymodule(gil_used = false)]
fn _dcd(module: &Bound<'_, PyModule>) -> PyResult<()> {
    watch::catch_panics();
    let end = wrap_pyfunction!(watch::_end, module)?;
    module.py().import("atexit")?.call_method1("register", (end,))?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("PAGE_BEGINNING", dcd_sim::advise::page::BEGINNING)?;
    module.add_class::<columns::Requests>()?;
    module.add_class::<columns::Column>()?;
    module.add_class::<disk::Disk>()?;
    module.add_function(wrap_pyfunction!(settings::settings, module)?)?;
    module.add_function(wrap_pyfunction!(settings::choices, module)?)?;
    module.add_function(wrap_pyfunction!(disk::disks, module)?)?;
    module.add_function(wrap_pyfunction!(studies::read, module)?)?;
    module.add_function(wrap_pyfunction!(studies::simulate, module)?)?;
    module.add_function(wrap_pyfunction!(studies::sweep, module)?)?;
    module.add_function(wrap_pyfunction!(studies::grid, module)?)?;
    module.add_function(wrap_pyfunction!(studies::advise, module)?)?;
    module.add_function(wrap_pyfunction!(studies::summary, module)?)?;
    module.add_function(wrap_pyfunction!(studies::stack_distances, module)?)?;
    module.add_function(wrap_pyfunction!(studies::_panic, module)?)?;
    Ok(())
}
