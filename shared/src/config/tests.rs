use std::path::Path;

use secrecy::ExposeSecret;

use super::*;

/// A home and a project beside it.
struct Case {
    dir: tempfile::TempDir,
    sources: Sources,
}

impl Case {
    fn new(home: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let sources = Sources {
            home: dir.path().join("home"),
            workspace: Some(dir.path().join("project")),
            config_path: None,
            env: BTreeMap::new(),
            overrides: BTreeMap::new(),
        };
        std::fs::create_dir_all(&sources.home).unwrap();
        std::fs::create_dir_all(dir.path().join("project/.scv")).unwrap();
        std::fs::write(sources.home.join("config.toml"), home).unwrap();
        Self { dir, sources }
    }

    fn project(self, text: &str) -> Self {
        std::fs::write(self.dir.path().join("project/.scv/config.toml"), text).unwrap();
        self
    }

    fn explicit(mut self, text: &str) -> Self {
        let path = self.dir.path().join("explicit.toml");
        std::fs::write(&path, text).unwrap();
        self.sources.config_path = Some(path);
        self
    }

    fn env(mut self, name: &str, value: &str) -> Self {
        self.sources.env.insert(name.into(), value.into());
        self
    }

    fn flag(mut self, key: &str, value: &str) -> Self {
        self.sources.overrides.insert(key.into(), value.into());
        self
    }

    fn load(&self) -> Result<Config, ConfigError> {
        Config::load(&self.sources)
    }

    /// The error's sentence, with the paths made short.
    fn error(&self) -> String {
        let error = self.load().unwrap_err().to_string();
        error.replace(&format!("{}/", self.dir.path().display()), "")
    }
}

/// A configuration's values, flat, for comparing whole ones.
fn flat(config: &Config) -> toml::Table {
    toml::Table::try_from(config).unwrap()
}

fn bare(path: &Path) -> Sources {
    Sources {
        home: path.to_owned(),
        workspace: None,
        config_path: None,
        env: BTreeMap::new(),
        overrides: BTreeMap::new(),
    }
}

#[test]
fn without_any_file_the_defaults_hold() {
    let dir = tempfile::tempdir().unwrap();
    let config = Config::load(&bare(dir.path())).unwrap();
    let mut expected = Config::default();
    expected.skills.user_dir = dir.path().join("skills");
    assert_eq!(flat(&config), flat(&expected));
    assert_eq!(config.tools.command_timeout_seconds, 600);
    assert_eq!(config.agents["codex"].args, ["exec"]);
}

#[test]
fn the_table_of_keys_and_the_types_agree() {
    let mut typed = BTreeSet::new();
    let config = Config {
        providers: BTreeMap::from([("*".into(), ProviderProfile::default())]),
        agents: BTreeMap::from([("*".into(), Agent::default())]),
        channels: BTreeMap::from([("*".into(), BTreeMap::from([("*".into(), Channel::default())]))]),
        ..Config::default()
    };
    let schema = serde_json::to_value(schemars::schema_for!(Config)).unwrap();
    for (section, value) in flat(&config) {
        collect(&section, &value, &mut typed);
    }
    // Secrets are never serialized.
    typed.extend(["providers.*.api_key".into(), "providers.*.headers".into()]);
    let listed: BTreeSet<String> = keys().map(|key| key.path.into()).collect();
    assert_eq!(typed, listed);
    assert!(schema["properties"]["tools"].is_object());
}

fn collect(path: &str, value: &toml::Value, keys: &mut BTreeSet<String>) {
    match value {
        toml::Value::Table(table) => {
            table.iter().for_each(|(name, value)| collect(&format!("{path}.{name}"), value, keys));
        }
        _ => {
            keys.insert(path.into());
        }
    }
}

#[test]
fn every_default_is_a_value_that_is_allowed() {
    let text = toml::to_string(&Config::default()).unwrap();
    let case = Case::new(&text);
    let mut expected = Config::default();
    expected.skills.user_dir = case.sources.home.join("skills");
    assert_eq!(flat(&case.load().unwrap()), flat(&expected));
}

#[test]
fn the_starter_says_what_the_defaults_are() {
    let uncommented: String = STARTER.lines().fold(String::new(), |text, line| {
        let is_setting = line.starts_with("# ") && line[2..].split(' ').nth(1) == Some("=");
        text + if is_setting { &line[2..] } else { line } + "\n"
    });
    for text in [STARTER, &uncommented] {
        let case = Case::new(text);
        let mut expected = Config::default();
        expected.skills.user_dir = case.sources.home.join("skills");
        assert_eq!(flat(&case.load().unwrap()), flat(&expected));
    }
}

#[test]
fn the_starter_is_private_and_replaces_nothing() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().unwrap();
    let layout = crate::layout::Layout::open(&dir.path().join("home")).unwrap();
    let path = write_starter(&layout).unwrap();
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    std::fs::write(&path, "mine").unwrap();
    assert_eq!(write_starter(&layout).unwrap_err().kind(), std::io::ErrorKind::AlreadyExists);
    assert_eq!(std::fs::read(&path).unwrap(), b"mine");
    assert_eq!(std::fs::read_dir(layout.home()).unwrap().count(), 1);
}

#[test]
fn a_later_layer_wins() {
    let case = Case::new("[agent]\nmax_steps = 10\n[providers.openai]\nmodel = \"home\"\nbase_url = \"http://h\"")
        .project("[agent]\nmax_steps = 9")
        .explicit("[agent]\nmax_steps = 50\n[providers.openai]\nmodel = \"explicit\"\n")
        .env("SCV_MODEL", "variable");
    let config = case.load().unwrap();
    assert_eq!(config.agent.max_steps, 50);
    assert_eq!(config.providers["openai"].model, "variable");
    assert_eq!(config.providers["openai"].base_url, "http://h");
    // What nobody set stays as it is built in, also in a profile that somebody changed.
    assert_eq!(config.providers["openai"].api_key_env, "OPENAI_API_KEY");
    let case = case.flag("providers.openai.model", "flag").flag("agent.max_steps", "7");
    assert_eq!(case.load().unwrap().providers["openai"].model, "flag");
    assert_eq!(case.load().unwrap().agent.max_steps, 7);
}

#[test]
fn variables_are_about_the_profile_that_is_active() {
    let case = Case::new("[providers.local]\nmodel = \"m\"\nbase_url = \"http://127.0.0.1:1/v1\"\n")
        .env("SCV_PROVIDER", "local")
        .env("SCV_MODEL", "other");
    let config = case.load().unwrap();
    let profile = config.provider_profile(None).unwrap();
    assert_eq!((profile.model.as_str(), profile.base_url.as_str()), ("other", "http://127.0.0.1:1/v1"));
    // A new profile inherits nobody's key.
    assert_eq!(profile.api_key_env, "");
    assert_eq!(config.providers["openai"].model, "gpt-4.1-mini");
    let config = case.flag("provider.active", "openai").load().unwrap();
    assert_eq!(config.provider_profile(None).unwrap().model, "other");
}

#[test]
fn an_error_names_file_line_key_and_what_is_allowed() {
    let cases = [
        (
            "[agent]\n\nmax_background = 17",
            "home/config.toml line 3: agent.max_background has to be a whole number from 0 to 16",
        ),
        (
            "[tools]\nmax_timeout_seconds = 86401",
            "home/config.toml line 2: tools.max_timeout_seconds has to be a whole number from 1 to 86400",
        ),
        (
            "[tools]\ncomand_timeout_seconds = 1",
            "home/config.toml line 2: there is no key tools.comand_timeout_seconds; did you mean tools.command_timeout_seconds?",
        ),
        ("max_steps = 1", "home/config.toml line 1: there is no key max_steps; did you mean agent.max_steps?"),
        ("[tool]\napproval_policy = 1", "home/config.toml line 1: there is no key tool"),
        (
            "[tools]\napproval_policy = \"nevver\"",
            "home/config.toml line 2: tools.approval_policy has to be one of \"on-risk\", \"always\", \"never\"",
        ),
        ("[web]\nenabled = \"yes\"", "home/config.toml line 2: web.enabled has to be true or false"),
        ("web = 3", "home/config.toml line 1: web has to be a table"),
        (
            "[agents.codx]\nmodel = \"m\"",
            "home/config.toml line 1: there is no key agents.codx; did you mean agents.codex?",
        ),
        (
            "[agents.dsh]\nmodel = \"m\"",
            "home/config.toml line 2: agents.dsh.model has to be empty: agents.dsh.model_args offers no choice",
        ),
        (
            "[agents.dsh]\neffort = \"high\"",
            "home/config.toml line 2: agents.dsh.effort has to be empty: agents.dsh.effort_args offers no choice",
        ),
        (
            "[agents.codex]\nuse_for = \"two\\nlines\"",
            "home/config.toml line 2: agents.codex.use_for has to be one line of at most 500 bytes",
        ),
        (
            "[agent]\nprefer = [\"cody\"]",
            "home/config.toml line 2: agent.prefer has to be a list; each entry one of \"claude\", \"codex\", \"dsh\", \"grok\", \"pi\", \"scv\"",
        ),
        (
            "[provider]\nactive = \"nobody\"",
            "home/config.toml line 2: provider.active names nothing that is configured; there is openai",
        ),
        (
            "[providers.openai]\nbase_url = \"https://user:pw@h/v1\"",
            "home/config.toml line 2: providers.openai.base_url has to be a http:// or https:// address without user name, password, query or fragment",
        ),
        (
            "[context]\nmax_tokens = 5000",
            "home/config.toml line 2: context.max_tokens has to be such that context.max_tokens is more than reserve_output_tokens and safety_margin_tokens together",
        ),
        (
            "[tools]\nmax_timeout_seconds = 60\ncommand_timeout_seconds = 61",
            "home/config.toml line 3: tools.command_timeout_seconds has to be at most tools.max_timeout_seconds, which is 60",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(Case::new(text).error(), expected);
    }
}

#[test]
fn a_note_on_an_agent_has_at_most_500_bytes() {
    let note = |bytes: usize| Case::new(&format!("[agents.codex]\nuse_for = \"{}\"", "x".repeat(bytes))).load();
    assert_eq!(note(500).unwrap().agents["codex"].use_for.len(), 500);
    note(501).unwrap_err();
}

#[test]
fn an_error_never_shows_the_line_or_a_value() {
    const KEY: &str = "sk-live-0123456789abcdef";
    let broken = [
        format!("[providers.openai]\napi_key = \"{KEY}"),
        format!("[providers.openai]\napi_key = {KEY}"),
        format!("[providers.openai]\napi_key {KEY}"),
        format!("[providers.openai]\n{KEY}"),
        format!("[providers.openai]\n{KEY} = 1"),
        format!("{KEY} = 1"),
        format!("[providers.openai]\napi_key_env = \"{KEY}\""),
        format!("[providers.openai]\napi_keys = \"{KEY}\""),
        format!("[providers.openai]\napi_key = [\"{KEY}\"]"),
        format!("[providers.openai]\nbase_url = \"https://h/?key={KEY}\""),
        format!("[providers.openai.headers]\nx = [\"{KEY}\"]"),
        format!("[providers.\"{KEY} x\"]\nmodel = \"m\""),
        format!("[tools]\nmax_timeout_seconds = \"{KEY}\""),
        format!("[agents.\"{KEY}\"]\nmodel = \"m\""),
        format!("[providers.openai]\napi_key = \"{KEY}\"\napi_key = \"{KEY}\""),
    ];
    for text in broken {
        let case = Case::new(&text);
        let error = case.load().unwrap_err();
        assert!(matches!(error.place, Place::File(_, 1..)), "{error}");
        let told = format!("{error} {error:?}");
        assert!(!told.contains("0123456789"), "{told}");
    }
    let error = Case::new("").env("SCV_BASE_URL", KEY).load().unwrap_err();
    assert!(!format!("{error} {error:?}").contains(KEY));
}

#[test]
fn the_default_instances_own_file_is_no_project_of_another_instance() {
    let mut case = Case::new("").project("[provider]\nactive = \"mine\"");
    assert!(Config::load(&case.sources).is_err(), "a project may not do that");
    let user = case.dir.path().join("project").to_str().unwrap().to_owned();
    case.sources.env.insert("HOME".into(), user);
    assert_eq!(Config::load(&case.sources).unwrap().provider.active, "openai");
}

#[test]
fn a_project_that_weakens_something_is_refused() {
    let cases = [
        (
            "[agent]\nmax_steps = 129",
            "project/.scv/config.toml line 2: a project may not do that to agent.max_steps: it may only lower it, to at most 128",
        ),
        ("[tools]\napproval_policy = \"on-risk\"", ""),
        (
            "[provider]\nactive = \"openai\"",
            "project/.scv/config.toml line 2: a project may not do that to provider.active: it belongs to the user's own configuration",
        ),
        (
            "[agents.codex]\ncommand = \"./evil\"",
            "project/.scv/config.toml line 2: a project may not do that to agents.codex.command: it belongs to the user's own configuration",
        ),
        (
            "[agent]\nprefer = [\"codex\"]",
            "project/.scv/config.toml line 2: a project may not do that to agent.prefer: it belongs to the user's own configuration",
        ),
        (
            "[agents.codex]\nuse_for = \"everything\"",
            "project/.scv/config.toml line 2: a project may not do that to agents.codex.use_for: it belongs to the user's own configuration",
        ),
        (
            "[providers.evil]\nbase_url = \"http://evil\"",
            "project/.scv/config.toml line 2: a project may not do that to providers.evil.base_url: it belongs to the user's own configuration",
        ),
        (
            "[web]\nauto_approve_domains = [\"evil.example\"]",
            "project/.scv/config.toml line 2: a project may not do that to web.auto_approve_domains: it may only leave entries out",
        ),
    ];
    for (text, expected) in cases {
        let case = Case::new("").project(text);
        if expected.is_empty() {
            case.load().unwrap();
        } else {
            assert_eq!(case.error(), expected);
        }
    }
}

#[test]
fn no_key_of_providers_agents_or_channels_is_open_to_a_project() {
    let opened = keys().filter(|key| {
        let place = key.path.split('.').next().unwrap();
        ["provider", "providers", "agents", "channels", "supervisor"].contains(&place) && key.project != Tighten::Never
    });
    // A lower limit and fewer abilities are the exceptions.
    assert_eq!(
        opened.map(|key| key.path).collect::<Vec<_>>(),
        ["providers.*.timeout_seconds", "providers.*.image_input"]
    );
}

#[test]
fn a_project_lowers_a_ceiling_and_the_limits_below_it() {
    let case = Case::new("[tools]\ncommand_timeout_seconds = 500").project("[tools]\nmax_timeout_seconds = 60");
    let tools = case.load().unwrap().tools;
    assert_eq!((tools.max_timeout_seconds, tools.command_timeout_seconds, tools.agent_timeout_seconds), (60, 60, 60));
}

#[test]
fn a_workspace_that_holds_the_home_is_no_project() {
    let dir = tempfile::tempdir().unwrap();
    let mut sources = bare(&dir.path().join(".scv"));
    sources.workspace = Some(dir.path().to_owned());
    std::fs::create_dir(dir.path().join(".scv")).unwrap();
    std::fs::write(dir.path().join(".scv/config.toml"), "[providers.openai]\nmodel = \"mine\"").unwrap();
    assert_eq!(Config::load(&sources).unwrap().providers["openai"].model, "mine");
}

#[test]
fn a_file_that_was_asked_for_has_to_be_there() {
    let mut case = Case::new("");
    case.sources.config_path = Some(case.dir.path().join("none.toml"));
    assert_eq!(case.error(), "none.toml: cannot read the configuration");
}

#[test]
fn the_key_comes_from_the_variable_then_the_file_then_the_named_variable() {
    let file = "[providers.openai]\napi_key = \"from-file\"\n[providers.b]\napi_key_env = \"B_KEY\"";
    let config = Case::new(file).load().unwrap();
    let env: BTreeMap<String, String> =
        [("B_KEY", "from-b"), ("OPENAI_API_KEY", "from-openai")].map(|(n, v)| (n.into(), v.into())).into();
    let key = |profile: &str, env: &BTreeMap<String, String>| {
        config.providers[profile].api_key(env).map(|key| key.expose_secret().to_owned())
    };
    assert_eq!(key("openai", &env).as_deref(), Some("from-file"));
    assert_eq!(key("b", &env).as_deref(), Some("from-b"));
    assert_eq!(key("b", &BTreeMap::new()), None);
    let with_override = BTreeMap::from([(API_KEY_ENV.to_owned(), "over".to_owned())]);
    assert_eq!(key("openai", &with_override).as_deref(), Some("over"));
    assert_eq!(config.key_env_names(), ["BRAVE_SEARCH_API_KEY", "B_KEY", "OPENAI_API_KEY"]);
    let secrets = config.secret_values(&env);
    let secrets: Vec<&str> = secrets.iter().map(ExposeSecret::expose_secret).collect();
    assert_eq!(secrets, ["from-b", "from-file", "from-openai"]);
}

#[test]
fn settings_tell_where_a_value_is_from_and_hide_secrets() {
    let case = Case::new(
        "[agent]\nmax_steps = 5\nsystem_prompt = \"say topsecret-1 twice\"\n[providers.openai]\napi_key = \"topsecret-1\"\n\
         headers = { Authorization = \"Bearer topsecret-2\" }\n",
    );
    let layers = Layers::read(&case.sources).unwrap();
    let settings = layers.settings(false, &BTreeMap::new()).unwrap();
    let shown = settings.iter().map(|s| format!("{} = {}", s.key, s.value.as_deref().unwrap_or("?")));
    assert_eq!(
        shown.collect::<Vec<_>>(),
        [
            "agent.max_steps = 5",
            "agent.system_prompt = \"say [secret] twice\"",
            "providers.openai.api_key = ?",
            "providers.openai.headers = ?",
        ]
    );
    let all = layers.settings(true, &BTreeMap::new()).unwrap();
    let find = |key: &str| all.iter().find(|setting| setting.key == key).map(|setting| &setting.place);
    assert_eq!(find("tools.max_timeout_seconds"), Some(&Place::BuiltIn));
    assert_eq!(settings[0].place, Place::File(case.sources.home.join("config.toml"), 2));
    let config = layers.config().unwrap();
    assert!(!format!("{layers:?}").contains("topsecret"), "Debug of the layers shows a secret");
    assert!(!format!("{:?}", config.providers).contains("topsecret"), "Debug of a profile shows a secret");
}
