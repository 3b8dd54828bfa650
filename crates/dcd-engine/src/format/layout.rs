//! Names, offsets and sizes of the structures on the cache-disk, taken from the structures
//! themselves. `tests/disk_format_document.rs` compares them with the tables of
//! `docs/disk-format.md`, so that code and document cannot drift apart.

/// A field of a structure on the cache-disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FieldLayout {
    /// Its name in the structure.
    pub name: &'static str,
    /// Where it begins, in bytes from the beginning of the structure.
    pub offset: usize,
    /// How many bytes it has.
    pub size: usize,
}

/// Size of the field that `field` points out.
pub(crate) fn size_of_field<S, F>(_field: impl Fn(&S) -> &F) -> usize {
    size_of::<F>()
}

/// The layout of a structure with these fields. A field that is left out does not compile.
macro_rules! layout_of {
    ($structure:ident { $($field:ident),* $(,)? }) => {{
        let _all_are_named = |structure: &$structure| {
            let $structure { $($field: _),* } = structure;
        };
        vec![$($crate::format::layout::FieldLayout {
            name: stringify!($field),
            offset: std::mem::offset_of!($structure, $field),
            size: $crate::format::layout::size_of_field(|s: &$structure| &s.$field),
        }),*]
    }};
}

pub(crate) use layout_of;
