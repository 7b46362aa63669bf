//! Which files a program's code needs: asked of Python, found by the core.

use paceline::files::{Bundle, Files, Wanted};
use paceline_slot::Runtime;
use pyo3::intern;
use pyo3::prelude::*;
use std::path::PathBuf;
use std::sync::Arc;

/// Those of a client. `ask` gives `paceline._files.Wanted`.
pub fn of_client(ask: Py<PyAny>) -> Files {
    let gather = move || {
        let wanted = crate::ending::attach(|py| wanted(ask.bind(py)).map_err(|error| error.to_string()))?;
        Bundle::gather(&wanted)
    };
    Files::new(Arc::new(gather), Arc::new(crate::session::warn))
}

/// Those of a slot: what its client brought, or the client's own if it is on the same machine.
pub fn of_slot(runtime: &Runtime, ask: Option<Py<PyAny>>) -> Option<Files> {
    match runtime.files().filter(|_| runtime.is_far()) {
        Some(files) => {
            let gather = move || Bundle::brought(files.as_ref());
            Some(Files::new(Arc::new(gather), Arc::new(crate::session::warn)))
        }
        None => ask.map(of_client),
    }
}

fn wanted(ask: &Bound<'_, PyAny>) -> PyResult<Wanted> {
    let py = ask.py();
    let told = ask.call0()?;
    let paths = |name| told.get_item(name)?.extract::<Vec<PathBuf>>();
    Ok(Wanted {
        roots: paths(intern!(py, "roots"))?,
        folders_with_modules: paths(intern!(py, "folders_with_modules"))?,
        packages: paths(intern!(py, "packages"))?,
        files: paths(intern!(py, "files"))?,
        folders: paths(intern!(py, "folders"))?,
        skip: paths(intern!(py, "skip"))?,
        notes: told.get_item(intern!(py, "notes"))?.extract()?,
    })
}
