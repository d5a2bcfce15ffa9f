#[inline(always)]
pub fn wait() {}

#[inline(always)]
pub fn allow_next() {}
