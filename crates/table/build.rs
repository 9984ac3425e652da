//! Says where this crate's source is: the agent is built from it, too, for the program that it goes into.

fn main() {
    println!("cargo::metadata=source={}/src", std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default());
    println!("cargo::rerun-if-changed=build.rs");
}
