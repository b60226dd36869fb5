//! What the arguments of a routine must be. An error is the place of the first illegal one.

use super::scalar::Op;

pub(super) type Checked<T = ()> = Result<T, i32>;

/// A number of rows, columns or diagonals.
pub(super) fn size(value: i64, place: i32) -> Checked<usize> {
    usize::try_from(value).map_err(|_| place)
}

pub(super) fn increment(value: i64, place: i32) -> Checked<i64> {
    if value == 0 { Err(place) } else { Ok(value) }
}

/// A leading dimension for columns of so many stored entries.
pub(super) fn leading(value: i64, stored: usize, place: i32) -> Checked<usize> {
    usize::try_from(value).ok().filter(|&ld| ld >= stored.max(1)).ok_or(place)
}

/// The operation of a routine that cannot do all of them.
pub(super) fn one_of(op: Option<Op>, allowed: &[Op], place: i32) -> Checked<Op> {
    op.filter(|op| allowed.contains(op)).ok_or(place)
}
