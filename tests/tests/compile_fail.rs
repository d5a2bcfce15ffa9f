//! Launches that must not compile, and what the compiler says instead.

use std::env;
use std::process::{Command, Stdio};

/// Needs cargo and the sources, which a machine that only runs the tests may lack.
#[test]
fn wrong_launches_and_wrong_attributes_do_not_compile() {
    let cargo = Command::new("cargo").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !cargo.is_ok_and(|status| status.success()) {
        let test = concat!(module_path!(), "::wrong_launches_and_wrong_attributes_do_not_compile");
        return warpwright_tests::skipped("compiler", test, "there is no cargo on this machine");
    }
    // This program lies in <build directory>/<profile>/deps, beside most of what the tests' programs depend on.
    let program = env::current_exe().expect("the system knows where this program lies");
    if let Some(directory) = program.ancestors().nth(3) {
        // SAFETY: no other thread of this program, which has one test, reads or writes the environment meanwhile.
        unsafe { env::set_var("CARGO_BUILD_BUILD_DIR", directory) };
    }
    trybuild::TestCases::new().compile_fail("compile_fail/*.rs");
}
