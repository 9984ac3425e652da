//! Whose code a function of a task is: of the runtime and the standard library, or of the program.

/// How names of functions begin that are no program's own. A package of Go is a path, so a slash or a dot ends its name.
const FOREIGN: [&str; 48] = [
    "_cgoexp_",
    "archive/",
    "bufio.",
    "bytes.",
    "compress/",
    "container/",
    "context.",
    "core::",
    "crypto.",
    "crypto/",
    "database/",
    "encoding/",
    "errors.",
    "expvar.",
    "flag.",
    "fmt.",
    "futures_",
    "hash/",
    "html/",
    "image/",
    "internal/",
    "io.",
    "io/",
    "iter.",
    "log.",
    "log/",
    "maps.",
    "math/",
    "mime/",
    "net.",
    "net/",
    "os.",
    "os/",
    "path/",
    "reflect.",
    "regexp.",
    "runtime.",
    "runtime/",
    "slices.",
    "sort.",
    "strings.",
    "sync.",
    "syscall.",
    "testing.",
    "text/",
    "time.",
    "tokio::",
    "vendor/",
];
/// What Go makes for each function of C that is called.
const CALL_OF_C: &str = "._Cfunc_";

/// Whether a function of a task is of a runtime or of the standard library, so that its caller tells more.
pub fn is_of_library(function: &str) -> bool {
    FOREIGN.iter().any(|start| function.starts_with(start)) || function.contains(CALL_OF_C)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_programs_and_of_libraries() {
        for name in ["os/exec.(*Cmd).Wait", "net/http.(*Transport).getConn", "main._Cfunc_take", "tokio::time::sleep"] {
            assert!(is_of_library(name), "{name}");
        }
        for name in
            ["main.main", "example.com/time/queue.(*Q).Put", "iou.run", "golang.org/x/sync/errgroup.(*Group).Wait"]
        {
            assert!(!is_of_library(name), "{name}");
        }
    }
}
