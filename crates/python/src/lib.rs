//! The extension module below the Python package `graphweft`: arrays in, the facade called, results out.
//!
//! There is no logic here. What Python can do, a Rust caller of the facade can do; what is convenient in Python
//! (keyword arguments, estimators, tables) is in `python/graphweft`. Long work runs on a thread of its own while the
//! caller's thread waits without the interpreter's lock, hears of epochs, and notices Ctrl-C: see [`work`].

mod bench;
mod data;
mod error;
mod import;
mod kernels;
mod model;
mod run;
mod work;

use pyo3::prelude::*;

/// What `import graphweft` loads.
#[pymodule]
fn _graphweft(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add("VERSION", graphweft::VERSION)?;
    m.add_class::<data::Graph>()?;
    m.add_class::<data::Dataset>()?;
    m.add_class::<data::DatasetBuilder>()?;
    m.add_class::<kernels::EdgeKernels>()?;
    m.add_function(wrap_pyfunction!(run::train, m)?)?;
    m.add_function(wrap_pyfunction!(run::plan, m)?)?;
    m.add_function(wrap_pyfunction!(run::calibrate, m)?)?;
    m.add_function(wrap_pyfunction!(run::config, m)?)?;
    m.add_function(wrap_pyfunction!(run::keys, m)?)?;
    m.add_function(wrap_pyfunction!(model::evaluate, m)?)?;
    m.add_function(wrap_pyfunction!(model::predict, m)?)?;
    m.add_function(wrap_pyfunction!(model::write, m)?)?;
    m.add_function(wrap_pyfunction!(model::smooth, m)?)?;
    m.add_function(wrap_pyfunction!(import::import_data, m)?)?;
    m.add_function(wrap_pyfunction!(run::partition, m)?)?;
    m.add_function(wrap_pyfunction!(run::generate, m)?)?;
    m.add_function(wrap_pyfunction!(run::info, m)?)?;
    m.add_function(wrap_pyfunction!(run::doctor, m)?)?;
    m.add_function(wrap_pyfunction!(run::runs, m)?)?;
    m.add_function(wrap_pyfunction!(run::report, m)?)?;
    m.add_function(wrap_pyfunction!(bench::bench_epochs, m)?)?;
    m.add_function(wrap_pyfunction!(bench::bench_op, m)?)?;
    m.add_function(wrap_pyfunction!(work::panic_for_test, m)?)?;
    Ok(())
}
