//! One number for each dimension, without an allocation.

use std::fmt;
use std::ops::{Deref, DerefMut};

/// The most dimensions that a tensor can have.
pub const MAX_RANK: usize = 8;

/// Up to [`MAX_RANK`] numbers: a shape, or strides.
#[derive(Clone, Copy)]
pub(crate) struct Dims<T> {
    values: [T; MAX_RANK],
    rank: usize,
}

impl<T: Copy + Default> Dims<T> {
    pub fn new() -> Self {
        Dims { values: [T::default(); MAX_RANK], rank: 0 }
    }

    /// `None` where there are more than [`MAX_RANK`].
    pub fn from_slice(values: &[T]) -> Option<Self> {
        let mut dims = Self::new();
        dims.values.get_mut(..values.len())?.copy_from_slice(values);
        dims.rank = values.len();
        Some(dims)
    }

    /// As many zeros as there are dimensions; `rank` is at most [`MAX_RANK`].
    pub fn zeros(rank: usize) -> Self {
        Dims { rank: rank.min(MAX_RANK), ..Self::new() }
    }

    /// Appends a dimension. Callers have room: they copy at most as many as another `Dims` holds.
    pub fn push(&mut self, value: T) {
        if self.rank < MAX_RANK {
            self.values[self.rank] = value;
            self.rank += 1;
        }
    }

    /// Without dimension `dim`, which exists.
    pub fn without(&self, dim: usize) -> Self {
        let mut dims = Self::new();
        self.iter().enumerate().filter(|&(i, _)| i != dim).for_each(|(_, &value)| dims.push(value));
        dims
    }

    /// With `value` in front of dimension `dim`; there is room.
    pub fn with(&self, dim: usize, value: T) -> Self {
        let mut dims = Self::new();
        let (front, back) = self.split_at(dim.min(self.rank));
        front.iter().for_each(|&v| dims.push(v));
        dims.push(value);
        back.iter().for_each(|&v| dims.push(v));
        dims
    }
}

impl<T> Deref for Dims<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        &self.values[..self.rank]
    }
}

impl<T> DerefMut for Dims<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.values[..self.rank]
    }
}

impl<T: PartialEq> PartialEq for Dims<T> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}
impl<T: Eq> Eq for Dims<T> {}

impl<T: fmt::Debug> fmt::Debug for Dims<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
