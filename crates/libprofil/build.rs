//! Names the library, and keeps it loaded.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libprofil.so");
    // It has a thread of its own while profiling is on, and a handler for fork, which must not lose their
    // code when a program unloads the library.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rerun-if-changed=build.rs");
}
