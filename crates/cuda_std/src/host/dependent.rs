#[inline(always)]
pub fn wait() {}

#[inline(always)]
pub fn allow_next() {}

#[inline(always)]
pub fn begin() {}
