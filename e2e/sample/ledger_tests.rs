use super::*;

fn deposit(account: &str, amount: u64) -> Command {
    Command::Deposit {
        account: account.to_owned(),
        amount,
    }
}

fn withdraw(account: &str, amount: u64) -> Command {
    Command::Withdraw {
        account: account.to_owned(),
        amount,
    }
}

fn transfer(from: &str, to: &str, amount: u64) -> Command {
    Command::Transfer {
        from: from.to_owned(),
        to: to.to_owned(),
        amount,
    }
}

fn anonymous(command: Command) -> Event {
    Event { id: None, command }
}

fn named(id: &str, command: Command) -> Event {
    Event {
        id: Some(id.to_owned()),
        command,
    }
}

fn record(epoch: i32, event: Event) -> Vec<u8> {
    serde_json::to_vec(&Record { epoch, event }).unwrap()
}

/// A ledger after these events, all under epoch 1.
fn ledger(events: impl IntoIterator<Item = Event>) -> Ledger {
    let mut ledger = Ledger::default();
    for event in events {
        let number = ledger.applied() + 1;
        ledger.apply(number, &record(1, event)).unwrap();
    }
    ledger
}

fn balances(ledger: &Ledger) -> Vec<(&str, u64)> {
    ledger
        .balances()
        .iter()
        .map(|(name, balance)| (name.as_str(), *balance))
        .collect()
}

#[test]
fn events_are_applied_in_order() {
    let ledger = ledger([deposit("a", 10), transfer("a", "b", 4), withdraw("b", 1)].map(anonymous));
    assert_eq!(balances(&ledger), [("a", 6), ("b", 3)]);
    assert_eq!(ledger.applied(), 3);
}

#[test]
fn the_digest_is_the_known_chain() {
    let mut by_hand = [0; 32];
    let mut ledger = Ledger::default();
    for (number, data) in [
        (1_u64, record(1, anonymous(deposit("a", 1)))),
        (2, record(2, anonymous(deposit("b", 2)))),
    ] {
        ledger.apply(number, &data).unwrap();
        by_hand = Sha256::digest([&by_hand[..], &number.to_be_bytes(), &data].concat()).into();
    }
    assert_eq!(ledger.digest(), Digest(by_hand));
    assert_eq!(ledger.digest().to_string().len(), 64);
}

#[test]
fn other_logs_have_other_digests() {
    let one = ledger([deposit("a", 1), deposit("b", 1)].map(anonymous));
    let swapped = ledger([deposit("b", 1), deposit("a", 1)].map(anonymous));
    assert_eq!(one.balances(), swapped.balances());
    assert_ne!(one.digest(), swapped.digest());
}

#[test]
fn a_record_that_does_not_fit_leaves_the_ledger_as_it_was() {
    let before = ledger([anonymous(deposit("a", 5))]);
    let mut after = before.clone();
    after.apply(2, &record(2, anonymous(deposit("a", 1)))).unwrap();
    let good = after.clone();
    let errors = [
        after.apply(2, &record(2, anonymous(deposit("a", 1)))),
        after.apply(4, &record(2, anonymous(deposit("a", 1)))),
        after.apply(3, b"{}"),
        after.apply(3, &record(1, anonymous(deposit("a", 1)))),
        after.apply(3, &record(2, anonymous(withdraw("a", 7)))),
    ]
    .map(|result| result.unwrap_err().to_string());
    assert_eq!(
        errors,
        [
            "record 2 does not follow 2",
            "record 4 does not follow 2",
            "record 3 cannot be read: missing field `epoch` at line 1 column 2",
            "record 3 has epoch 1, after 2",
            "record 3 breaks a rule: account \"a\" has 6, 7 needed",
        ]
    );
    assert_eq!(after, good);
}

#[test]
fn each_broken_rule_is_named() {
    let ledger = ledger([anonymous(deposit("rich", u64::MAX)), anonymous(deposit("a", 5))]);
    let overdraft = |account: &str, balance, amount| Refusal::Overdraft {
        account: account.to_owned(),
        balance,
        amount,
    };
    let long = "x".repeat(MAX_ACCOUNT + 1);
    for (event, why) in [
        (anonymous(deposit("", 1)), Refusal::BadAccount(String::new())),
        (anonymous(deposit("a b", 1)), Refusal::BadAccount("a b".to_owned())),
        (
            anonymous(transfer("a", "b/c", 1)),
            Refusal::BadAccount("b/c".to_owned()),
        ),
        (anonymous(deposit(&long, 1)), Refusal::BadAccount(long.clone())),
        (named("", deposit("a", 1)), Refusal::BadId),
        (named("a b", deposit("a", 1)), Refusal::BadId),
        (named(&"i".repeat(MAX_ID + 1), deposit("a", 1)), Refusal::BadId),
        (anonymous(deposit("a", 0)), Refusal::ZeroAmount),
        (anonymous(withdraw("a", 0)), Refusal::ZeroAmount),
        (anonymous(transfer("a", "b", 0)), Refusal::ZeroAmount),
        (anonymous(transfer("a", "a", 1)), Refusal::SameAccount("a".to_owned())),
        (anonymous(withdraw("a", 6)), overdraft("a", 5, 6)),
        (anonymous(withdraw("nobody", 1)), overdraft("nobody", 0, 1)),
        (anonymous(transfer("a", "b", 6)), overdraft("a", 5, 6)),
        (anonymous(deposit("rich", 1)), Refusal::Overflow("rich".to_owned())),
        (
            anonymous(transfer("a", "rich", 1)),
            Refusal::Overflow("rich".to_owned()),
        ),
    ] {
        assert_eq!(ledger.draft().admit(&event), Err(why), "{event:?}");
    }
}

#[test]
fn an_event_is_judged_in_view_of_those_admitted_before_it() {
    let ledger = ledger([anonymous(deposit("a", 5))]);
    let mut draft = ledger.draft();
    assert_eq!(draft.admit(&anonymous(transfer("a", "b", 4))), Ok(Admission::Append(2)));
    assert_eq!(
        draft.admit(&anonymous(withdraw("a", 2))),
        Err(Refusal::Overdraft {
            account: "a".to_owned(),
            balance: 1,
            amount: 2
        })
    );
    assert_eq!(draft.admit(&anonymous(withdraw("b", 4))), Ok(Admission::Append(3)));
    assert_eq!(balances(&ledger), [("a", 5)]);
}

#[test]
fn an_event_sent_again_is_the_same_event() {
    let ledger = ledger([named("one", deposit("a", 5))]);
    let mut draft = ledger.draft();
    assert_eq!(draft.admit(&named("one", deposit("a", 5))), Ok(Admission::Duplicate(1)));
    assert_eq!(draft.admit(&named("two", withdraw("a", 5))), Ok(Admission::Append(2)));
    assert_eq!(
        draft.admit(&named("two", withdraw("a", 5))),
        Ok(Admission::Duplicate(2))
    );
    assert_eq!(
        draft.admit(&named("one", deposit("a", 6))),
        Err(Refusal::IdReused {
            id: "one".to_owned(),
            number: 1
        })
    );
}

#[test]
fn a_body_with_unknown_fields_is_not_an_event() {
    let read = |text| serde_json::from_str::<Event>(text).map_err(|_| "refused");
    assert_eq!(
        read(r#"{"id":"1","command":{"transfer":{"from":"a","to":"b","amount":3}}}"#),
        Ok(named("1", transfer("a", "b", 3)))
    );
    assert_eq!(
        read(r#"{"command":{"deposit":{"account":"a","amount":3}}}"#),
        Ok(anonymous(deposit("a", 3)))
    );
    for bad in [
        r#"{"command":{"deposit":{"account":"a","amount":3}},"extra":1}"#,
        r#"{"command":{"deposit":{"account":"a","amount":3,"extra":1}}}"#,
        r#"{"command":{"deposit":{"account":"a","amount":-3}}}"#,
        r#"{"command":{"deposit":{"account":"a","amount":1.5}}}"#,
        r#"{"command":{"steal":{"account":"a","amount":3}}}"#,
        "",
    ] {
        assert_eq!(read(bad), Err("refused"), "{bad}");
    }
}
