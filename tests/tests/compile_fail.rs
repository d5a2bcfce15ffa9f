//! Launches that must not compile, and what the compiler says instead.

use std::process::{Command, Stdio};

/// Needs cargo and the sources, which a machine that only runs the tests may lack.
#[test]
fn wrong_launches_and_wrong_attributes_do_not_compile() {
    let cargo = Command::new("cargo").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !cargo.is_ok_and(|status| status.success()) {
        let test = concat!(module_path!(), "::wrong_launches_and_wrong_attributes_do_not_compile");
        return warpwright_tests::skipped("compiler", test, "there is no cargo on this machine");
    }
    trybuild::TestCases::new().compile_fail("compile_fail/*.rs");
}
