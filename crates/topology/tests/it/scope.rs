use inflight_topology::{ParseScopeError, Scope};

#[test]
fn names_go_both_ways() {
    for scope in Scope::ALL {
        assert_eq!(scope.to_string().parse(), Ok(scope));
    }
}

#[test]
fn only_the_exact_name_is_a_name() {
    for text in [
        "",
        "c",
        "cach",
        "cache_",
        "Cache",
        "CACHE_SHARD",
        " cpu",
        "cpu\n",
        "cluster",
    ] {
        assert_eq!(text.parse::<Scope>(), Err(ParseScopeError), "{text:?}");
    }
    assert_eq!("cache".parse(), Ok(Scope::Cache));
    assert_eq!("cache_shard".parse(), Ok(Scope::CacheShard));
}

#[test]
fn display_obeys_width() {
    assert_eq!(format!("[{:<11}]", Scope::Cpu), "[cpu        ]");
}
