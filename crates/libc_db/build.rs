//! Names the library, and keeps it loaded.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libc_db.so");
    // It may have a thread of its own (the one that holds suspended threads), which must not lose its
    // code when a debugger unloads the library.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rerun-if-changed=build.rs");
}
