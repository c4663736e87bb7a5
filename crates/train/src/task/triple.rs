//! Links of several relations: [links](super::link) that are scored by ranks alone.

pub(crate) use super::link::Triple;
